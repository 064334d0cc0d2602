package tailorbird.kernel;

import com.fasterxml.jackson.databind.*;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * A message between steps: (k, m), m opaque to Spark: op (1 byte), version (8, big-endian), length of the row's id
 * (4), that id, payload. A payload is ts_ms (8), the trace (a zero byte, a count, entries of 8) and the values as the
 * inside of a JSON array, empty for an absent row. `joins.runtime.records` documents each op and writes the same bytes
 * (its v, r and p).
 * All sources use only what Janino 3.1 compiles: no lambdas, no diamonds, casts instead of some generics.
 */
public final class Message {
  static final byte DIM_PUT = 0, DIM_GONE = 1; // the right side of a join
  static final byte PUT = 2, MOVED = 3, GONE = 4, NEW = 10, SURE = 11, LOST = 12; // a row that points at a key
  static final byte PART = 5; // of a row of a multi-way join
  static final byte ROW_GONE = 6, ROW_PUT = 7, REFUSED = 8, TRUNCATION_POINT = 9; // to the sink
  static final byte PARTIAL = 13; // changes of a group's rows that one partition summed
  static final byte ADDED = 14, TAKEN = 15; // contributions of a row to a group, on their way to `Combine`
  static final byte EXACT_BEFORE = 16, EXACT_AFTER = 17; // both images of an exact change, on their way to `Combine`
  static final byte SINK = (byte) 0xFF, MULTI_JOIN = (byte) 0x80;
  static final byte[] NONE = new byte[0];
  private static final int VERSION = 1, LENGTH = 9; // offsets of these fields
  static final int ROW = 13; // offset of the payload in a message without a row id
  static final int TIME = 8; // length of a payload's time
  private static final int OFFSET_BITS = 44, GROUP = 255; // of a trace's entries

  static Encoder<Tuple2<byte[], byte[]>> encoder() {
    return Encoders.tuple(Encoders.BINARY(), Encoders.BINARY());
  }

  /** A message for `target`: the number of a lookup join, of a multi-way join, or SINK. */
  static Tuple2<byte[], byte[]> of(int target, byte[] key, byte op, long version, byte[] row, byte[] payload) {
    byte[] to = ByteBuffer.allocate(1 + key.length).put((byte) target).put(key).array();
    ByteBuffer message = ByteBuffer.allocate(ROW + row.length + payload.length).put(op).putLong(version);
    return new Tuple2<byte[], byte[]>(to, message.putInt(row.length).put(row).put(payload).array());
  }

  static long version(byte[] message) {
    return ByteBuffer.wrap(message).getLong(VERSION);
  }

  /** Whether `message` replaces `other`. Between equal versions the bytes decide, so a replay gives the same result. */
  static boolean newer(byte[] message, byte[] other) {
    if (version(message) != version(other)) return version(message) > version(other);
    int from = payloadAt(message), begins = payloadAt(other);
    return Arrays.compareUnsigned(message, from, message.length, other, begins, other.length) >= 0;
  }

  /** The id of the row that a message concerns. */
  static byte[] row(byte[] message) {
    return Arrays.copyOfRange(message, ROW, payloadAt(message));
  }

  /** The offset of the values in a payload that begins at `payload`. Their text has no zero byte. */
  static int textAt(byte[] bytes, int payload) {
    int text = payload + TIME;
    return bytes.length > text && bytes[text] == 0 ? text + 2 + 8 * (bytes[text + 1] & 0xFF) : text;
  }

  /** The trace of a message without a row id. */
  static byte[] trace(byte[] message) {
    return Arrays.copyOfRange(message, ROW + TIME, textAt(message, ROW));
  }

  /** A record's partition and offset as one number, -1 if they do not fit: `cdc.stored.traces`. */
  static long place(int partition, long offset) {
    boolean fits = partition >= 0 && partition < 1 << 12 && offset >= 0 && offset < 1L << OFFSET_BITS;
    return fits ? (long) partition << OFFSET_BITS | offset : -1;
  }

  /** The trace of one row that node number `node` read at `place`. */
  static byte[] seen(int node, long place) {
    return place < 0 || node < 0 || node >= GROUP ? NONE : traceOf((long) node << 56 | place);
  }

  /** The trace that contains a group's number of rows. */
  static byte[] counted(int group, long rows) {
    return traceOf((long) GROUP << 56 | (long) group << 48 | Math.min(rows, (1L << 48) - 1));
  }

  private static byte[] traceOf(long entry) {
    return ByteBuffer.allocate(10).put((byte) 0).put((byte) 1).putLong(entry).array();
  }

  /** The trace of a row joined from two rows. */
  static byte[] traced(byte[] left, byte[] right) {
    if (left.length == 0 || right.length == 0) return left.length == 0 ? right : left;
    ByteBuffer both = ByteBuffer.allocate(left.length + right.length - 2).put(left).put(right, 2, right.length - 2);
    return both.put(1, (byte) (left[1] + right[1])).array();
  }

  static byte[] payload(byte[] message) {
    return Arrays.copyOfRange(message, payloadAt(message), message.length);
  }

  /** The milliseconds of the payload of a message without a row id. */
  static long time(byte[] message) {
    return ByteBuffer.wrap(message).getLong(ROW);
  }

  static int payloadAt(byte[] message) {
    return ROW + ByteBuffer.wrap(message).getInt(LENGTH);
  }

  /** Joins two payloads; an empty `right` becomes NULLs. */
  static byte[] joined(byte[] left, byte[] right, byte[] nulls) {
    if (right.length == 0) return ByteBuffer.allocate(left.length + nulls.length).put(left).put(nulls).array();
    int own = textAt(left, 0), other = textAt(right, 0), from = own > TIME && other > TIME ? TIME + 2 : TIME;
    ByteBuffer out = ByteBuffer.allocate(left.length + 1 + right.length - from); // a comma replaces its time
    out.put(left, 0, own).put(right, from, other - from).put(left, own, left.length - own);
    out.put((byte) ',').put(right, other, right.length - other);
    if (from > TIME) out.put(TIME + 1, (byte) (left[TIME + 1] + right[TIME + 1]));
    return out.putLong(0, Math.max(out.getLong(0), ByteBuffer.wrap(right).getLong())).array();
  }

  /** NULLs to append to a row's values. */
  static byte[] nulls(int count) {
    return String.join("", Collections.nCopies(count, ",null")).getBytes();
  }

  /**
   * A node's whole row (`payload` null: its deletion) as a message to its consumer: the sink, or the lookup join whose
   * right side it is. By its version a put beats a deletion.
   */
  static Tuple2<byte[], byte[]> result(int target, byte[] id, byte[] payload, long version) {
    boolean sink = (byte) target == SINK;
    if (payload == null) return of(target, id, sink ? ROW_GONE : DIM_GONE, version, NONE, NONE);
    return of(target, id, sink ? ROW_PUT : DIM_PUT, version, NONE, payload);
  }

  /**
   * Emits a changed row as it was and as it is, for `Combine`; null: no such row. Both have the time and trace of the
   * new row, or of a row that moved away those in `moved`.
   */
  static void retraction(int target, byte[] id, byte[] was, byte[] now, byte[] moved, Collection<Object> out) {
    int from = was == null ? 0 : textAt(was, 0), begins = now == null ? 0 : textAt(now, 0);
    if (was != null && now != null && Arrays.equals(was, from, was.length, now, begins, now.length)) return;
    byte[] newer = now == null ? moved : now;
    int head = newer.length == 0 ? TIME : textAt(newer, 0);
    if (was != null) {
      ByteBuffer image = ByteBuffer.allocate(head + was.length - from);
      if (newer.length > 0) image.put(newer, 0, head);
      image.position(head);
      out.add(of(target, id, EXACT_BEFORE, 1, NONE, image.put(was, from, was.length - from).array()));
    }
    if (now != null) out.add(of(target, id, EXACT_AFTER, 1, NONE, now));
  }

  /** Concatenates parts, each preceded by its length; `unpacked` inverts it. */
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

  /** A field of an object, or an item of an array. */
  static JsonNode at(JsonNode node, Object where) {
    if (where instanceof String) return (JsonNode) node.get((String) where); // Janino sees the supertype's `get` only
    return (JsonNode) node.get(((Integer) where).intValue());
  }

  static scala.collection.Iterator<Object> asScala(Iterator<Object> items) {
    return scala.jdk.javaapi.CollectionConverters.asScala(items);
  }

  /** Appends a stateful step to `messages` (k, m). */
  @SuppressWarnings({"unchecked", "rawtypes"})
  static Dataset<Row> through(Dataset<Row> messages, StatefulProcessor step, TimeMode time) {
    Dataset<Row> input = messages.toDF(new String[] {"_1", "_2"}); // the names of the tuple's fields
    RelationalGroupedDataset grouped = input.groupBy(new Column[] {input.col("_1")});
    KeyValueGroupedDataset keyed = grouped.as(Encoders.BINARY(), (Encoder) encoder());
    Dataset out = keyed.transformWithState(step, time, OutputMode.Append(), (Encoder) encoder());
    return out.toDF(new String[] {"k", "m"});
  }
}
