package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.*;

/** Tuples in their order: a page of a bag. Each is written as its length, its bytes and its count. */
final class Page {
  static final int MOST = 4096; // bytes; a tuple that is larger has a page of its own
  private static final int PARTED = 3072; // target size of the parts of a split page
  static final int FEW = 1024; // smaller pages are merged into the next one

  /**
   * Its tuples and, of the `changed` ones, {tuple, {by how many}}, those at `from` to `to`; null: one would be there
   * less than not at all.
   */
  static byte[] merged(byte[] page, List<Object[]> changed, int from, int to, Tally tally) {
    ByteBuffer old = ByteBuffer.wrap(page);
    Bytes out = new Bytes(page.length + 16 * (to - from) + 16);
    int next = from;
    while (old.hasRemaining()) {
      byte[] tuple = Bytes.block(old);
      long count = Bytes.count(old);
      int order = -1;
      while (next < to && (order = Arrays.compareUnsigned(at(changed, next), tuple)) < 0) {
        if (!put(out, at(changed, next), 0, by(changed, next++), tally)) return null;
      }
      long by = next < to && order == 0 ? by(changed, next++) : 0;
      if (!put(out, tuple, count, by, tally)) return null;
    }
    for (; next < to; next++) if (!put(out, at(changed, next), 0, by(changed, next), tally)) return null;
    return out.array();
  }

  private static byte[] at(List<Object[]> changed, int place) {
    return (byte[]) ((Object[]) changed.get(place))[0];
  }

  private static long by(List<Object[]> changed, int place) {
    return ((long[]) ((Object[]) changed.get(place))[1])[0];
  }

  private static boolean put(Bytes out, byte[] tuple, long count, long by, Tally tally) {
    long now = count + by;
    if (by != 0) tally.changed(tuple, count, now);
    if (now > 0) out.putBlock(tuple).putCount(now);
    return now >= 0;
  }

  /** Splits a page that is too large. */
  static List<byte[]> parted(byte[] page) {
    List<byte[]> parts = new ArrayList<byte[]>();
    int wanted = (page.length + PARTED - 1) / PARTED, start = 0;
    if (page.length <= MOST) return new ArrayList<byte[]>(Collections.singletonList(page));
    ByteBuffer from = ByteBuffer.wrap(page);
    while (from.hasRemaining()) {
      pass(from);
      int end = from.position();
      if (end - start < page.length / wanted && from.hasRemaining()) continue;
      parts.add(Arrays.copyOfRange(page, start, end));
      start = end;
    }
    return parts;
  }

  static byte[] first(byte[] page) {
    return Bytes.block(ByteBuffer.wrap(page));
  }

  static byte[] last(byte[] page) {
    ByteBuffer from = ByteBuffer.wrap(page);
    while (true) {
      int start = from.position();
      pass(from);
      if (!from.hasRemaining()) return Bytes.block(from.position(start));
    }
  }

  private static void pass(ByteBuffer from) {
    int length = (int) Bytes.count(from);
    from.position(from.position() + length);
    Bytes.count(from);
  }

  static byte[] joined(byte[] one, byte[] other) {
    return new Bytes(one.length + other.length).put(one).put(other).array();
  }

  /**
   * The shortest separator between a page whose first tuple is `first` and the page before it, which ends with
   * `before`.
   */
  static byte[] separator(byte[] before, byte[] first) {
    int same = Arrays.mismatch(before, first);
    return Arrays.copyOf(first, Math.min(first.length, same + 1));
  }
}
