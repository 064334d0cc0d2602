package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import scala.Tuple2;

/** By how much a group's rows have changed: their number, the totals, and the number of each tuple of the bags. */
final class Partial {
  private final Group group;
  private final byte[] key;
  long rows, ts;
  byte[] trace = Message.NONE; // of the newest change
  final Sum[] sums;
  private final Map[] tuples; // per bag: tuple → {by how many}

  Partial(Group group, byte[] key) {
    this.group = group;
    this.key = key;
    sums = group.sums();
    tuples = new Map[group.bags.length];
    for (int i = 0; i < tuples.length; i++) tuples[i] = new HashMap<Object, long[]>();
  }

  /** A message that rows have changed: the newest is remembered, of those of one time the greatest trace. */
  void saw(byte[] message) {
    long time = Message.version(message);
    if (time < ts) return;
    byte[] told = Message.row(message);
    if (time > ts || Arrays.compareUnsigned(told, trace) > 0) trace = told;
    ts = time;
  }

  /** A row that comes (`sign` 1) or goes (-1), whose arguments lie at `at`; how many tuples more it holds. */
  int add(byte[] text, int[] at, int sign, Bytes scratch) {
    rows += sign;
    for (int i = 0; i < sums.length; i++) {
      int argument = group.totals[i];
      sums[i].add(text, at[argument], at[argument + 1] - 1, sign);
    }
    int more = 0;
    for (int i = 0; i < tuples.length; i++) {
      scratch.length = 0;
      if (group.bags[i].write(text, at, scratch)) more += count(tuples[i], scratch.array(), sign);
    }
    return more;
  }

  private static int count(Map held, byte[] tuple, long times) {
    Object at = ByteBuffer.wrap(tuple);
    long[] count = (long[]) held.get(at);
    if (count != null) {
      count[0] += times;
      return 0;
    }
    held.put(at, new long[] {times});
    return 1;
  }

  /** As it travels to the group's step. */
  Tuple2<byte[], byte[]> message() {
    Bytes out = new Bytes(32);
    out.putSigned(rows);
    for (int i = 0; i < sums.length; i++) sums[i].write(out);
    for (int i = 0; i < tuples.length; i++) {
      out.putCount(tuples[i].size());
      for (Iterator<?> each = tuples[i].entrySet().iterator(); each.hasNext(); ) {
        Map.Entry tuple = (Map.Entry) each.next();
        out.putBlock(((ByteBuffer) tuple.getKey()).array()).putSigned(((long[]) tuple.getValue())[0]);
      }
    }
    return Message.of(group.number, key, Message.PARTIAL, ts, trace, out.array());
  }

  /** Adds what another place found. */
  void merge(byte[] message) {
    ByteBuffer from = ByteBuffer.wrap(Message.payload(message));
    saw(message);
    rows += Bytes.signed(from);
    for (int i = 0; i < sums.length; i++) sums[i].read(from);
    for (int i = 0; i < tuples.length; i++) {
      for (long left = Bytes.count(from); left > 0; left--) {
        byte[] tuple = Bytes.block(from);
        count(tuples[i], tuple, Bytes.signed(from));
      }
    }
  }

  /** The tuples of a bag in their order with their counts, those that change nothing left out. */
  List<Object[]> sorted(int bag) {
    List<Object[]> changed = new ArrayList<Object[]>(tuples[bag].size());
    for (Iterator<?> each = tuples[bag].entrySet().iterator(); each.hasNext(); ) {
      Map.Entry tuple = (Map.Entry) each.next();
      long[] count = (long[]) tuple.getValue();
      if (count[0] != 0) changed.add(new Object[] {((ByteBuffer) tuple.getKey()).array(), count});
    }
    Collections.sort(changed, new Comparator<Object>() {
      public int compare(Object one, Object other) {
        return Arrays.compareUnsigned((byte[]) ((Object[]) one)[0], (byte[]) ((Object[]) other)[0]);
      }
    });
    return changed;
  }
}
