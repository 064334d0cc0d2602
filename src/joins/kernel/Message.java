package tailorbird.kernel;

import com.fasterxml.jackson.databind.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * What travels between the steps: (k, m), m opaque to Spark: op (1 byte), v (8, big-endian), length of r (4), r, p; a payload p is ts_ms (8) and the values
 * as the inside of a JSON array, empty for an absent row. `joins.steps.records` says what each means and writes the same bytes.
 * The sources are kept to what Janino 3.1 compiles: no lambdas, no diamonds, casts where generics would do.
 */
public final class Message {
  static final byte DIM_PUT = 0, DIM_GONE = 1, PUT = 2, MOVED = 3, GONE = 4, PART = 5, ROW_GONE = 6, ROW_PUT = 7, REFUSED = 8, FLOOR = 9, NEW = 10, SURE = 11, LOST = 12;
  static final byte SINK = (byte) 0xFF, STAR = (byte) 0x80;
  static final byte[] NONE = new byte[0];

  static Encoder<Tuple2<byte[], byte[]>> encoder() {
    return Encoders.tuple(Encoders.BINARY(), Encoders.BINARY());
  }

  static Tuple2<byte[], byte[]> of(int target, byte[] key, byte op, long v, byte[] r, byte[] p) {
    byte[] k = ByteBuffer.allocate(1 + key.length).put((byte) target).put(key).array();
    return new Tuple2<byte[], byte[]>(k, ByteBuffer.allocate(13 + r.length + p.length).put(op).putLong(v).putInt(r.length).put(r).put(p).array());
  }

  static long v(byte[] m) {
    return ByteBuffer.wrap(m).getLong(1);
  }

  /** Whether what `m` says holds; between two that nothing orders the bytes decide, so that a replay says the same. */
  static boolean newer(byte[] m, byte[] other) {
    if (v(m) != v(other)) return v(m) > v(other);
    int from = 13 + ByteBuffer.wrap(m).getInt(9), begins = 13 + ByteBuffer.wrap(other).getInt(9);
    return Arrays.compareUnsigned(m, from, m.length, other, begins, other.length) >= 0;
  }

  static byte[] r(byte[] m) {
    return Arrays.copyOfRange(m, 13, 13 + ByteBuffer.wrap(m).getInt(9));
  }

  static byte[] p(byte[] m) {
    return Arrays.copyOfRange(m, 13 + ByteBuffer.wrap(m).getInt(9), m.length);
  }

  /** One payload of two; an empty `right` is so many NULLs. */
  static byte[] joined(byte[] left, byte[] right, byte[] nulls) {
    ByteBuffer out = ByteBuffer.allocate(left.length + (right.length == 0 ? nulls.length : right.length - 7)).put(left);
    if (right.length == 0) return out.put(nulls).array();
    long ts = Math.max(out.getLong(0), ByteBuffer.wrap(right).getLong());
    return out.put((byte) ',').put(right, 8, right.length - 8).putLong(0, ts).array();
  }

  static byte[] nulls(int count) {
    return String.join("", Collections.nCopies(count, ",null")).getBytes();
  }

  /** A node's whole row (p null: its end) for whom it is meant: the sink, or the hop whose right side it is. Put beats gone: v. */
  static Tuple2<byte[], byte[]> result(int target, byte[] id, byte[] p, long v) {
    boolean sink = (byte) target == SINK;
    return of(target, id, p == null ? sink ? ROW_GONE : DIM_GONE : sink ? ROW_PUT : DIM_PUT, v, NONE, p == null ? NONE : p);
  }

  static byte[] packed(byte[][] parts) {
    int length = 0;
    for (int i = 0; i < parts.length; i++) length += 4 + parts[i].length;
    ByteBuffer out = ByteBuffer.allocate(length);
    for (int i = 0; i < parts.length; i++) out.putInt(parts[i].length).put(parts[i]);
    return out.array();
  }

  static byte[][] unpacked(ByteBuffer from, int count) {
    byte[][] parts = new byte[count][];
    for (int i = 0; i < count; i++) from.get(parts[i] = new byte[from.getInt()]);
    return parts;
  }

  static JsonNode parsed(String program) {
    try {
      return new ObjectMapper().readTree(program);
    } catch (java.io.IOException e) {
      throw new IllegalArgumentException("program: " + e.getMessage(), e);
    }
  }

  static JsonNode at(JsonNode node, Object where) { // Janino sees only the supertype's `get`
    return where instanceof String ? (JsonNode) node.get((String) where) : (JsonNode) node.get(((Integer) where).intValue());
  }

  static scala.collection.Iterator<Object> asScala(Iterator<Object> it) {
    return scala.jdk.javaapi.CollectionConverters.asScala(it);
  }

  /** Puts a stateful step behind `messages` (k, m). */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static Dataset<Row> through(Dataset<Row> messages, StatefulProcessor step, TimeMode time) {
    Dataset<Row> input = messages.toDF(new String[] {"_1", "_2"}); // as the tuple's fields are called
    return ((Dataset) input.groupBy(new Column[] {input.col("_1")}).as(Encoders.BINARY(), (Encoder) encoder())
        .transformWithState(step, time, OutputMode.Append(), (Encoder) encoder())).toDF(new String[] {"k", "m"});
  }
}
