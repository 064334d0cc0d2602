package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.charset.StandardCharsets;

/** The grouping of a program: `joins.query.group`. */
final class Group {
  final int number, target;
  final String table; // the query's table, for messages
  final int[] keys, arguments;
  final boolean[] binary; // whether each key is a double, which can be written in two ways
  final byte[] always; // the key of the row that exists even without rows; null: none
  final int[] totals; // per total, the argument that it sums
  final Numeric[] types; // per total
  final SortKey[] bags;
  final Result[] results;
  final Top top; // null: the result's rows are the groups, or those of `windows`
  final Windows windows; // null: no window functions
  private final Numeric[] lasts; // per bag, the last value's type

  Group(JsonNode group) {
    number = Message.at(group, "number").asInt();
    target = Message.at(group, "target").asInt();
    table = Message.at(group, "table").asText();
    keys = Source.ints(Message.at(group, "keys"));
    arguments = Source.ints(Message.at(group, "arguments"));
    JsonNode row = Message.at(group, "always"), summed = Message.at(group, "totals");
    always = row.isNull() ? null : row.asText().getBytes(StandardCharsets.UTF_8);
    binary = new boolean[keys.length];
    for (int i = 0; i < keys.length; i++) {
      binary[i] = new Numeric(Message.at(Message.at(group, "key_types"), Integer.valueOf(i))).binary;
    }
    totals = new int[summed.size()];
    types = new Numeric[totals.length];
    for (int i = 0; i < totals.length; i++) {
      JsonNode total = Message.at(summed, Integer.valueOf(i));
      totals[i] = Message.at(total, "argument").asInt();
      types[i] = new Numeric(Message.at(total, "type"));
    }
    JsonNode held = Message.at(group, "bags"), described = Message.at(group, "results");
    bags = new SortKey[held.size()];
    lasts = new Numeric[bags.length];
    for (int i = 0; i < bags.length; i++) {
      JsonNode bag = Message.at(held, Integer.valueOf(i)), each = Message.at(bag, "types");
      bags[i] = new SortKey(bag);
      lasts[i] = new Numeric(Message.at(each, Integer.valueOf(each.size() - 1)));
    }
    results = new Result[described.size()];
    for (int i = 0; i < results.length; i++) {
      JsonNode result = Message.at(described, Integer.valueOf(i));
      results[i] = new Result(result);
    }
    JsonNode first = Message.at(group, "top");
    top = first == null || first.isNull() ? null : new Top(first, keys.length, bags[0]);
    JsonNode over = Message.at(group, "windows");
    windows = over == null || over.isNull() ? null : new Windows(over, keys.length, bags[0]);
  }

  /** Reads the group from a fragment's program. */
  static Group of(String program) {
    JsonNode detectors = Message.at(Message.parsed(program), "change_detectors");
    return new Group(Message.at(Message.at(detectors, Integer.valueOf(0)), "group"));
  }

  String named(byte[] key) {
    return "table " + table + ", group " + new String(key, StandardCharsets.UTF_8);
  }

  /** A dead letter for a result that does not fit its type. */
  Object letter(byte[] key, Result result) {
    Integer none = Integer.valueOf(0);
    byte[] refused = Envelope.bytes(new Object[] {named(key), none, none, "not computed: " + result.text, key, null});
    return Message.of(Message.SINK, Message.NONE, Message.REFUSED, 0, Message.NONE, refused);
  }

  /** New, empty sums. */
  Sum[] sums() {
    Sum[] sums = new Sum[types.length];
    for (int i = 0; i < sums.length; i++) sums[i] = new Sum(types[i]);
    return sums;
  }

  /** The statistics that a bag keeps for the results that read it. */
  Tally tally(int bag) {
    boolean sum = false, list = false, set = false;
    for (int i = 0; i < results.length; i++) {
      if (results[i].of != bag || !results[i].readsBag) continue;
      sum |= results[i].keeps.equals("sum");
      list |= results[i].keeps.equals("list");
      set |= results[i].keeps.equals("set");
    }
    return new Tally(bags[bag], lasts[bag], sum, list, set);
  }
}
