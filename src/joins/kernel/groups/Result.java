package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigInteger;
import java.util.*;

/** One aggregate function over a group's content, as canonical text: `joins.query.group.Result`. */
final class Result {
  static final int COUNT_ROWS = 0, COUNT = 1, SUM = 2, AVG = 3, COUNT_DISTINCT = 4, SUM_DISTINCT = 5;
  static final int FIRST = 6, LAST = 7;
  static final int COLLECT_LIST = 8, COLLECT_SET = 9;
  private static final List<String> NAMES = Arrays.asList(new String[] {
    "count_rows", "count", "sum", "avg", "count_distinct", "sum_distinct", "min", "max", "collect_list", "collect_set"
  });
  static final byte[] REFUSED = new byte[0]; // marks a value that does not fit the type
  private static final int LONGEST = 1000000; // bytes of a list's text
  final int function, of;
  final String text;
  private final Fraction type;

  Result(JsonNode result) {
    String name = Message.at(result, "function").asText();
    function = NAMES.indexOf(name.endsWith("_by") ? name.substring(0, 3) : name);
    of = Message.at(result, "of").asInt();
    text = Message.at(result, "text").asText();
    type = new Fraction(Message.at(result, "type"));
  }

  boolean readsBag() {
    return function >= COUNT_DISTINCT;
  }

  /** The value for a group with this number of rows. */
  byte[] of(long rows, Sum[] sums, Bag[] bags) {
    if (function == COUNT_ROWS) return number(rows);
    if (!readsBag()) return ofTotal(sums[of]);
    Bag bag = bags[of];
    if (function == COUNT_DISTINCT) return number(bag.tally.distinct);
    if (function == SUM_DISTINCT) return bag.tally.sum.count == 0 ? Envelope.NULL : type.of(bag.tally.sum, 1);
    if (function == FIRST || function == LAST) {
      byte[] tuple = function == FIRST ? bag.first() : bag.last();
      return tuple == null ? Envelope.NULL : bag.tally.last(tuple);
    }
    return listed(bag);
  }

  private static byte[] number(long number) {
    return Texts.ascii(Long.toString(number));
  }

  private byte[] ofTotal(Sum sum) {
    if (function == COUNT) return number(sum.count);
    if (sum.count == 0) return Envelope.NULL;
    return type.of(sum, function == AVG ? sum.count : 1);
  }

  private byte[] listed(Bag bag) {
    long length = function == COLLECT_LIST ? bag.tally.listed : bag.tally.once;
    if (length + 1 > LONGEST) return REFUSED;
    Bytes out = new Bytes((int) length + 2).put('[');
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      byte[] value = bag.tally.last((byte[]) tuple[0]);
      long times = function == COLLECT_SET ? 1 : ((Long) tuple[1]).longValue();
      for (long i = Envelope.isNull(value) ? times : 0; i < times; i++) {
        (out.length > 1 ? out.put(',') : out).put(value);
      }
    }
    return out.put(']').array();
  }
}
