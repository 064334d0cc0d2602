package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;

/** One function over the ordered rows of a partition: `joins.query.group.WindowFunction`. */
final class WindowFunction {
  final int number;
  boolean refused; // whether a value of the last partition did not fit its type
  private final Windows windows;
  private final String kind;
  private final int argument, otherwise;
  private final boolean skips, peers, fromFirst, toLast;
  private final long start, end; // distances, if the frame is limited there

  WindowFunction(JsonNode function, Windows windows) {
    this.windows = windows;
    kind = Message.at(function, "kind").asText();
    number = Message.at(function, "number").asInt();
    argument = Message.at(function, "argument").asInt();
    otherwise = Message.at(function, "default").asInt();
    skips = Message.at(function, "skips").asBoolean();
    JsonNode frame = Message.at(function, "frame"), first = Message.at(frame, "start"), last = Message.at(frame, "end");
    peers = Message.at(frame, "peers").asBoolean();
    fromFirst = first.isNull();
    toLast = last.isNull();
    start = fromFirst ? 0 : first.asLong();
    end = toLast ? 0 : last.asLong();
  }

  /** The text of its value for each row. */
  byte[][] values(Windows.Partition partition) {
    refused = false;
    if (kind.equals("aggregate")) return aggregates(partition);
    if (kind.equals("offset") || kind.equals("nth")) return others(partition);
    int count = partition.tuples.length, dense = 0;
    byte[][] values = new byte[count][];
    for (int row = 0; row < count; row++) {
      int begin = partition.begins[row];
      if (begin == row) dense++;
      if (kind.equals("row_number")) values[row] = whole(row + 1);
      else if (kind.equals("rank")) values[row] = whole(begin + 1);
      else if (kind.equals("dense_rank")) values[row] = whole(dense);
      else if (kind.equals("percent_rank")) values[row] = Doubles.text((double) begin / Math.max(1, count - 1));
      else if (kind.equals("cume_dist")) values[row] = Doubles.text((double) partition.ends[row] / count);
      else if (kind.equals("ntile")) values[row] = whole(bucket(row, count));
      else throw new IllegalStateException("window function " + kind);
    }
    return values;
  }

  private static byte[] whole(int value) {
    return Texts.ascii(Integer.toString(value));
  }

  /** The first buckets have one row more if the rows cannot be divided evenly. */
  private int bucket(int row, int count) {
    int size = count / number, more = count % number;
    int larger = more * (size + 1);
    return row < larger ? row / (size + 1) + 1 : more + (row - larger) / size + 1;
  }

  /** The index of the first row of a row's frame. */
  private int from(Windows.Partition partition, int row) {
    if (fromFirst) return 0;
    return peers ? partition.begins[row] : (int) Math.min(Math.max(row + start, 0), partition.tuples.length);
  }

  /** The index after the last row of a row's frame. */
  private int to(Windows.Partition partition, int row) {
    if (toLast) return partition.tuples.length;
    return peers ? partition.ends[row] : (int) Math.min(Math.max(row + end + 1, 0), partition.tuples.length);
  }

  /** The values of other rows: lag, lead, first_value, last_value and nth_value. */
  private byte[][] others(Windows.Partition partition) {
    int count = partition.tuples.length;
    int[] read = new int[count], before = new int[count + 1]; // rows to choose from; how many precede
    for (int row = 0; row < count; row++) {
      boolean chosen = !skips || !Envelope.isNull(partition.row(row)[argument]);
      before[row + 1] = before[row];
      if (chosen) read[before[row + 1]++] = row;
    }
    byte[][] values = new byte[count][];
    for (int row = 0; row < count; row++) {
      long place;
      int least = 0, most = before[count];
      if (kind.equals("offset")) {
        place = number <= 0 ? (long) before[row] + number : (long) before[row + 1] + number - 1;
      } else {
        least = before[from(partition, row)];
        most = before[to(partition, row)];
        place = number < 0 ? most - 1 : (long) least + number - 1;
      }
      if (place >= least && place < most) values[row] = partition.row(read[(int) place])[argument];
      else values[row] = otherwise < 0 ? Envelope.NULL : partition.row(row)[otherwise];
    }
    return values;
  }

  /** The values of an aggregate function over the frames, whose ends only move forward. */
  private byte[][] aggregates(Windows.Partition partition) {
    Result result = windows.results[number];
    byte[][] values = new byte[partition.tuples.length][];
    Sum[] sums = new Sum[windows.totals.length];
    for (int i = 0; i < sums.length; i++) sums[i] = new Sum(windows.types[i]);
    Extreme extreme = result.readsBag ? new Extreme(windows.bags[result.of], result.last(), partition) : null;
    int first = 0, after = 0;
    for (int row = 0; row < values.length; row++) {
      int from = from(partition, row), to = to(partition, row);
      for (; after < to; after++) {
        if (extreme != null) extreme.enter(after);
        else if (sums.length > 0) sum(sums[result.of], partition.row(after), result.of, 1);
      }
      for (; first < from; first++) {
        if (extreme == null && sums.length > 0) sum(sums[result.of], partition.row(first), result.of, -1);
      }
      values[row] = extreme == null ? result.of(to - from, sums, null) : extreme.text(from);
      if (values[row] != Result.REFUSED) continue;
      refused = true;
      values[row] = Envelope.NULL;
    }
    return values;
  }

  private void sum(Sum sum, byte[][] row, int total, int sign) {
    byte[] text = row[windows.totals[total]];
    sum.add(text, 0, text.length, sign);
  }

  /** The least or the greatest tuple of a frame. Only rows that can still become it are kept. */
  private static final class Extreme {
    private final SortKey order;
    private final boolean greatest;
    private final Windows.Partition partition;
    private final ArrayDeque<Object> kept = new ArrayDeque<Object>(); // {row, tuple}, the extreme one first

    Extreme(SortKey order, boolean greatest, Windows.Partition partition) {
      this.order = order;
      this.greatest = greatest;
      this.partition = partition;
    }

    void enter(int row) {
      byte[][] texts = partition.row(row);
      int[] at = new int[texts.length + 1];
      Bytes text = new Bytes(64), tuple = new Bytes(32);
      for (int i = 0; i < texts.length; i++) {
        text.put(texts[i]).put(',');
        at[i + 1] = text.length;
      }
      if (!order.write(text.array(), at, tuple)) return;
      byte[] own = tuple.array();
      while (!kept.isEmpty()) {
        int compared = Arrays.compareUnsigned((byte[]) ((Object[]) kept.peekLast())[1], own);
        if (greatest ? compared > 0 : compared < 0) break;
        kept.removeLast();
      }
      kept.addLast(new Object[] {Integer.valueOf(row), own});
    }

    /** The text of its last value, NULL if there is none; `from` is the first row of the frame. */
    byte[] text(int from) {
      while (!kept.isEmpty() && ((Integer) ((Object[]) kept.peekFirst())[0]).intValue() < from) kept.removeFirst();
      return kept.isEmpty() ? Envelope.NULL : order.last((byte[]) ((Object[]) kept.peekFirst())[1]);
    }
  }
}
