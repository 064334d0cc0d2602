package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;

/** Computes functions over the ordered rows of a group, a partition: `joins.steps.windows`. */
final class Windows {
  final int[] totals; // per total, the value of the tuple that it sums
  final Numeric[] types; // per total
  final SortKey[] bags;
  final Result[] results;
  private final int keys, ordered;
  private final int[] names, values; // indexes among the key's values, the tuple's and the functions'
  private final SortKey order;
  private final WindowFunction[] functions;

  Windows(JsonNode windows, int keys, SortKey order) {
    this.keys = keys;
    this.order = order;
    ordered = Message.at(windows, "ordered").asInt();
    names = Source.ints(Message.at(windows, "names"));
    values = Source.ints(Message.at(windows, "values"));
    JsonNode summed = Message.at(windows, "totals"), held = Message.at(windows, "bags");
    JsonNode described = Message.at(windows, "results"), called = Message.at(windows, "functions");
    totals = new int[summed.size()];
    types = new Numeric[totals.length];
    for (int i = 0; i < totals.length; i++) {
      JsonNode total = Message.at(summed, Integer.valueOf(i));
      totals[i] = Message.at(total, "argument").asInt();
      types[i] = new Numeric(Message.at(total, "type"));
    }
    bags = new SortKey[held.size()];
    for (int i = 0; i < bags.length; i++) bags[i] = new SortKey(Message.at(held, Integer.valueOf(i)));
    results = new Result[described.size()];
    for (int i = 0; i < results.length; i++) results[i] = new Result(Message.at(described, Integer.valueOf(i)));
    functions = new WindowFunction[called.size()];
    for (int i = 0; i < functions.length; i++) {
      functions[i] = new WindowFunction(Message.at(called, Integer.valueOf(i)), this);
    }
  }

  /**
   * The text of each row by name, in order. Adds a dead letter for each function with a value that does not fit its
   * type.
   */
  Map<Object, byte[]> rows(byte[] key, Bag bag, Group group, Collection<Object> letters) {
    Partition partition = new Partition(bag);
    byte[][][] computed = new byte[functions.length][][];
    for (int i = 0; i < functions.length; i++) {
      computed[i] = functions[i].values(partition);
      boolean refused = letters != null && functions[i].refused;
      if (refused) letters.add(group.letter(key, results[functions[i].number]));
    }
    int width = order.width();
    byte[][] texts = new byte[keys + width + functions.length][];
    int[] at = new int[keys + 1];
    if (keys > 0) Texts.find(key, 0, at);
    for (int i = 0; i < keys; i++) texts[i] = Arrays.copyOfRange(key, at[i], at[i + 1] - 1);
    Map<Object, byte[]> rows = new LinkedHashMap<Object, byte[]>();
    for (int row = 0; row < partition.rows.length; row++) {
      System.arraycopy(partition.rows[row], 0, texts, keys, width);
      for (int i = 0; i < functions.length; i++) texts[keys + width + i] = computed[i][row];
      rows.put(ByteBuffer.wrap(Top.text(texts, names)), Top.text(texts, values));
    }
    return rows;
  }

  /** The rows of a partition in order, as texts of their values. `begins` and `ends` limit the peers of each row. */
  final class Partition {
    final byte[][][] rows;
    final int[] begins, ends;

    Partition(Bag bag) {
      rows = new byte[(int) bag.tally.distinct][][];
      begins = new int[rows.length];
      ends = new int[rows.length];
      Iterator<Object> tuples = bag.tuples();
      byte[] before = null;
      int prefix = 0; // length of the values by which `before` is ordered
      for (int row = 0; row < rows.length; row++) {
        byte[] tuple = (byte[]) ((Object[]) tuples.next())[0];
        int own = order.end(tuple, ordered);
        boolean same = before != null && Arrays.equals(before, 0, prefix, tuple, 0, own);
        begins[row] = same ? begins[row - 1] : row;
        before = tuple;
        prefix = own;
        rows[row] = new byte[order.width()][];
        order.texts(tuple, rows[row], 0);
      }
      for (int row = rows.length - 1; row >= 0; row--) {
        boolean last = row + 1 == rows.length || begins[row + 1] == row + 1;
        ends[row] = last ? row + 1 : ends[row + 1];
      }
    }
  }
}
