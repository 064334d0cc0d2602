package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;
import scala.Tuple2;

/** The change of a group: in its number of rows, its totals, and the count of each tuple of its bags. */
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

  /** Records a change's time: the newest one is kept, with the greatest trace among equal times. */
  void saw(byte[] message) {
    saw(Message.version(message), Message.row(message));
  }

  private void saw(long time, byte[] other) {
    if (time < ts) return;
    if (time > ts || Arrays.compareUnsigned(other, trace) > 0) trace = other;
    ts = time;
  }

  /** Records the time and trace of a row's payload. */
  void sawRow(byte[] message) {
    saw(Message.time(message), Message.trace(message));
  }

  /** Adds a row (`sign` 1) or removes it (-1); its arguments are at `at`. Returns how many tuples more are held. */
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

  /** The change as a message to the group's step. */
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

  /** Adds the sums of another partition. */
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

  /** The tuples of a bag in order with their count changes, those of 0 omitted. */
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
