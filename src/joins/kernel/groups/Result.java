package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;

/** One aggregate function over a group's content, as canonical text: `joins.query.group.Result`. */
final class Result {
  static final byte[] REFUSED = new byte[0]; // marks a value that does not fit the type
  private static final int LONGEST = 1000000; // bytes of a list's text
  final int of;
  final boolean readsBag;
  final String text, keeps; // `keeps`: what a bag stores for it beside its tuples
  private final String finish, given; // `given`: a literal of the call, if it has one
  private final Fraction type;

  Result(JsonNode result) {
    finish = Message.at(result, "finish").asText();
    readsBag = Message.at(result, "reads").asText().equals("bag");
    keeps = Message.at(result, "keeps").asText();
    of = Message.at(result, "of").asInt();
    text = Message.at(result, "text").asText();
    given = ((JsonNode) Message.at(result, "given").path(0)).asText(); // a cast: Janino takes path for TreeNode's
    type = new Fraction(Message.at(result, "type"));
  }

  /** Whether it is the last value of the greatest tuple of its bag. */
  boolean last() {
    return finish.equals("last");
  }

  /** The value for a group with this number of rows: `joins.steps.results.FINISHES`. */
  byte[] of(long rows, Sum[] sums, Bag[] bags) {
    if (finish.equals("rows")) return number(rows);
    if (finish.equals("count")) return number(sums[of].count);
    if (finish.equals("sum")) return parted(sums[of], 1);
    if (finish.equals("average")) return parted(sums[of], sums[of].count);
    if (finish.equals("distinct")) return number(bags[of].tally.distinct);
    if (finish.equals("sum of distinct")) return parted(bags[of].tally.sum, 1);
    if (finish.equals("average of distinct")) return parted(bags[of].tally.sum, bags[of].tally.distinct);
    if (finish.equals("first")) return last(bags[of], bags[of].first());
    if (finish.equals("last")) return last(bags[of], bags[of].last());
    if (finish.equals("list")) return listed(bags[of], false);
    if (finish.equals("set")) return listed(bags[of], true);
    if (finish.equals("most frequent")) return last(bags[of], Statistics.mostFrequent(bags[of]));
    if (finish.equals("median")) return parted(Statistics.middle(bags[of]), 2);
    if (finish.equals("percentile")) return percentile(bags[of]);
    if (finish.equals("value at a share")) return last(bags[of], Statistics.at(bags[of], given));
    if (finish.equals("number at a share")) return parted(Statistics.number(bags[of], given), 1);
    if (finish.equals("joined")) return Statistics.joined(bags[of], given, false, LONGEST);
    if (finish.equals("joined once")) return Statistics.joined(bags[of], given, true, LONGEST);
    if (finish.equals("variance")) return new Statistics(bags[of]).variance(0);
    if (finish.equals("variance of a sample")) return new Statistics(bags[of]).variance(1);
    if (finish.equals("deviation")) return new Statistics(bags[of]).deviation(0);
    if (finish.equals("deviation of a sample")) return new Statistics(bags[of]).deviation(1);
    throw new IllegalStateException("aggregate function " + finish);
  }

  /** The sum divided by a number; NULL if there is no value. */
  private byte[] parted(Sum sum, long by) {
    return sum.count == 0 ? Envelope.NULL : type.of(sum, by);
  }

  private byte[] percentile(Bag bag) {
    return parted(Statistics.percentile(bag, given), Statistics.unit(given));
  }

  private static byte[] last(Bag bag, byte[] tuple) {
    return tuple == null ? Envelope.NULL : bag.tally.last(tuple);
  }

  private static byte[] number(long number) {
    return Texts.ascii(Long.toString(number));
  }

  private static byte[] listed(Bag bag, boolean once) {
    long length = once ? bag.tally.once : bag.tally.listed;
    if (length + 1 > LONGEST) return REFUSED;
    Bytes out = new Bytes((int) length + 2).put('[');
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      byte[] value = bag.tally.last((byte[]) tuple[0]);
      long times = once ? 1 : ((Long) tuple[1]).longValue();
      for (long i = Envelope.isNull(value) ? times : 0; i < times; i++) {
        (out.length > 1 ? out.put(',') : out).put(value);
      }
    }
    return out.put(']').array();
  }
}
