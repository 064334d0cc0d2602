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

  /** A partition without rows. */
  Computed nothing() {
    return new Computed(new Partition());
  }

  /**
   * Computes all functions over a partition. Adds a dead letter for each function with a value that does not fit its
   * type.
   */
  Computed computed(byte[] key, Bag bag, Group group, Collection<Object> letters) {
    Computed computed = new Computed(new Partition(bag));
    for (int i = 0; i < functions.length; i++) {
      computed.values[i] = functions[i].values(computed.partition);
      boolean refused = letters != null && functions[i].refused;
      if (refused) letters.add(group.letter(key, results[functions[i].number]));
    }
    return computed;
  }

  /**
   * The texts, by name and in order, of the rows that differ between two versions of a partition. A change usually
   * leaves most rows as they are, so the texts of equal rows are not built.
   */
  void differences(byte[] key, Computed before, Computed after, Map<Object, byte[]> old, Map<Object, byte[]> now) {
    byte[][] texts = new byte[keys + order.width() + functions.length][];
    int[] at = new int[keys + 1];
    if (keys > 0) Texts.find(key, 0, at);
    for (int i = 0; i < keys; i++) texts[i] = Arrays.copyOfRange(key, at[i], at[i + 1] - 1);
    byte[][] left = before.partition.tuples, right = after.partition.tuples;
    int one = 0, other = 0;
    while (one < left.length || other < right.length) {
      int order = one == left.length ? 1 : other == right.length ? -1 : Arrays.compareUnsigned(left[one], right[other]);
      boolean same = order == 0 && equal(before, one, after, other);
      if (order <= 0 && !same) put(texts, before, one, old);
      if (order >= 0 && !same) put(texts, after, other, now);
      if (order <= 0) one++;
      if (order >= 0) other++;
    }
  }

  private boolean equal(Computed before, int one, Computed after, int other) {
    for (int i = 0; i < functions.length; i++) {
      if (!Arrays.equals(before.values[i][one], after.values[i][other])) return false;
    }
    return true;
  }

  private void put(byte[][] texts, Computed computed, int row, Map<Object, byte[]> rows) {
    int width = order.width();
    System.arraycopy(computed.partition.row(row), 0, texts, keys, width);
    for (int i = 0; i < functions.length; i++) texts[keys + width + i] = computed.values[i][row];
    rows.put(ByteBuffer.wrap(Top.text(texts, names)), Top.text(texts, values));
  }

  /** The values of the functions for the rows of a partition. */
  final class Computed {
    final Partition partition;
    final byte[][][] values = new byte[functions.length][][]; // per function, the text for each row

    Computed(Partition partition) {
      this.partition = partition;
    }
  }

  /** The rows of a partition in order, as tuples. `begins` and `ends` limit the peers of each row. */
  final class Partition {
    final byte[][] tuples;
    final int[] begins, ends;
    private final byte[][][] rows; // as texts of their values, decoded when first read

    Partition() {
      tuples = new byte[0][];
      rows = new byte[0][][];
      begins = ends = new int[0];
    }

    Partition(Bag bag) {
      rows = new byte[(int) bag.tally.distinct][][];
      tuples = new byte[rows.length][];
      begins = new int[rows.length];
      ends = new int[rows.length];
      Iterator<Object> stored = bag.tuples();
      byte[] before = null;
      int prefix = 0; // length of the values by which `before` is ordered
      for (int row = 0; row < rows.length; row++) {
        byte[] tuple = (byte[]) ((Object[]) stored.next())[0];
        int own = order.end(tuple, ordered);
        boolean same = before != null && Arrays.equals(before, 0, prefix, tuple, 0, own);
        begins[row] = same ? begins[row - 1] : row;
        before = tuple;
        prefix = own;
        tuples[row] = tuple;
      }
      for (int row = rows.length - 1; row >= 0; row--) {
        boolean last = row + 1 == rows.length || begins[row + 1] == row + 1;
        ends[row] = last ? row + 1 : ends[row + 1];
      }
    }

    /** The texts of a row's values. */
    byte[][] row(int number) {
      byte[][] texts = rows[number];
      if (texts != null) return texts;
      texts = new byte[order.width()][];
      order.texts(tuples[number], texts, 0);
      return rows[number] = texts;
    }
  }
}
