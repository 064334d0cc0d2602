package tailorbird.kernel;

import java.nio.ByteBuffer;

/** Statistics of a bag that need no read of its tuples: their number, and what its results need. */
final class Tally {
  private final SortKey order;
  private final Numeric last;
  private final boolean list, set;
  final Sum sum; // sum of the distinct tuples' last values; null: not needed
  long distinct;
  long listed, once; // length of the last values' texts with a comma each: with their counts, and distinct

  Tally(SortKey order, Numeric last, boolean summed, boolean list, boolean set) {
    this.order = order;
    this.last = last;
    this.list = list;
    this.set = set;
    sum = summed ? new Sum(last) : null;
  }

  /** Records that a tuple's count changed from `before` to `now`. */
  void changed(byte[] tuple, long before, long now) {
    int came = (now > 0 ? 1 : 0) - (before > 0 ? 1 : 0);
    distinct += came;
    if (came == 0 && !list || sum == null && !list && !set) return;
    byte[] text = order.last(tuple);
    if (Envelope.isNull(text)) return;
    if (sum != null && came != 0) sum.add(text, 0, text.length, came);
    listed += (now - before) * (text.length + 1);
    once += came * (text.length + 1);
  }

  void write(Bytes out) {
    out.putCount(distinct);
    if (sum != null) sum.write(out);
    if (list) out.putCount(listed);
    if (set) out.putCount(once);
  }

  void read(ByteBuffer from) {
    distinct = Bytes.count(from);
    if (sum != null) sum.read(from);
    if (list) listed = Bytes.count(from);
    if (set) once = Bytes.count(from);
  }

  /** A sum of no values, for the last values of tuples. */
  Sum zero() {
    return new Sum(last);
  }

  /** Decodes a tuple's last value to text. */
  byte[] last(byte[] tuple) {
    return order.last(tuple);
  }
}
