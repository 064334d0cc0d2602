package tailorbird.kernel;

import java.nio.ByteBuffer;

/** What a bag knows of its tuples without reading them: how many there are, and what its results need beside. */
final class Tally {
  private final SortKey order;
  private final boolean list, set;
  final Sum sum; // of the tuples' last values, each once; null: nobody asks
  long distinct;
  long listed, once; // length of the last values' texts, with a comma each: as often as they are there, and once

  Tally(SortKey order, Numeric last, boolean summed, boolean list, boolean set) {
    this.order = order;
    this.list = list;
    this.set = set;
    sum = summed ? new Sum(last) : null;
  }

  /** A tuple that is there `now` times and was `before`. */
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

  /** The text of a tuple's last value. */
  byte[] last(byte[] tuple) {
    return order.last(tuple);
  }
}
