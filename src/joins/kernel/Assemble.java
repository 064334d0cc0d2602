package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * Assembles each row of a multi-way join from the parts that its lookup joins send, and emits only whole rows:
 * `joins.steps.state.assemble_step`. State per row: its own payload and the payload of every part.
 */
public final class Assemble extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private transient MultiJoin[] joins;
  private transient ValueState<byte[]> stored;

  public Assemble(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Assemble(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    joins = new MultiJoin[128];
    JsonNode described = Message.at(Message.parsed(program), "multi_joins");
    for (int i = 0; i < described.size(); i++) {
      JsonNode join = Message.at(described, Integer.valueOf(i));
      joins[Message.at(join, "multi_join").asInt()] = new MultiJoin(join);
    }
    stored = getHandle().getValueState("row_v1", Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group;
    List<Object> out = new ArrayList<Object>();
    if (key[0] >= 0 || joins[key[0] & ~Message.MULTI_JOIN] == null) { // for a later step
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    MultiJoin join = joins[key[0] & ~Message.MULTI_JOIN];
    assemble(join, Arrays.copyOfRange(key, 1, key.length), newest(join, input), out);
    return Message.asScala(out.iterator());
  }

  /** The newest message of a batch about the row itself, and about each of its parts. */
  private static byte[][] newest(MultiJoin join, scala.collection.Iterator<Object> input) {
    byte[][] newest = new byte[1 + join.nulls.length][];
    while (input.hasNext()) {
      byte[] message = (byte[]) ((Tuple2) input.next())._2();
      int part = message[0] == Message.PART ? 1 + Message.row(message)[0] : 0;
      if (newest[part] == null || Message.newer(message, newest[part])) newest[part] = message;
    }
    return newest;
  }

  private void assemble(MultiJoin join, byte[] id, byte[][] newest, Collection<Object> out) {
    boolean gone = newest[0] != null && newest[0][0] == Message.GONE;
    byte[][] row = parts(newest, gone);
    // a row that is complete in the batch needs no read, unless an inner join needs to know whether it was visible,
    // or a group what it was
    boolean reads = join.anyInner || join.retracts || Arrays.asList((Object[]) row).contains(null);
    byte[] before = reads ? (byte[]) stored.get() : null;
    byte[][] old = before == null ? null : Message.unpacked(ByteBuffer.wrap(before), row.length);
    boolean shown = old != null && join.shows(old);
    byte[] was = shown && join.retracts ? join.whole(old) : null;
    if (gone || row[0] == null && old == null) {
      if (gone) stored.clear();
      if (gone && join.retracts) Message.retraction(join.target, id, was, null, Message.NONE, out);
      else if (gone && shown) out.add(Message.result(join.target, id, null, 0));
      return;
    }
    for (int i = 0; i < row.length; i++) {
      if (row[i] == null && old == null) { // the log lacks the beginning of the row and did not say so
        out.add(join.refused(id, i));
        return;
      }
      if (row[i] == null) row[i] = old[i];
    }
    stored.update(Message.packed(row));
    byte[] now = join.shows(row) ? join.whole(row) : null;
    if (join.retracts) Message.retraction(join.target, id, was, now, Message.NONE, out);
    else if (now != null) out.add(Message.result(join.target, id, now, 1));
    else if (shown) out.add(Message.result(join.target, id, null, 0));
  }

  /** The payloads in a batch: the row's own and each part's; null for those not in the batch. */
  private static byte[][] parts(byte[][] newest, boolean gone) {
    byte[][] row = new byte[newest.length][];
    if (newest[0] != null && !gone) { // together with the part of its first lookup
      ByteBuffer both = ByteBuffer.wrap(Message.payload(newest[0]));
      both.get(row[0] = new byte[both.getInt()]);
      both.get(row[1] = new byte[both.remaining()]);
    }
    for (int i = 1; i < row.length; i++) if (row[i] == null && newest[i] != null) row[i] = Message.payload(newest[i]);
    return row;
  }

  private static final class MultiJoin {
    final int target;
    final byte[][] nulls;
    final boolean[] inner;
    private final String of;
    boolean anyInner;
    final boolean retracts; // a group receives each row as it was and as it is

    MultiJoin(JsonNode join) {
      target = Message.at(join, "target").asInt();
      of = Message.at(join, "of").asText();
      retracts = Message.at(join, "retracts") != null;
      inner = new boolean[Message.at(join, "inner").size()];
      nulls = new byte[inner.length][];
      for (int i = 0; i < inner.length; i++) {
        anyInner |= inner[i] = Message.at(Message.at(join, "inner"), Integer.valueOf(i)).asBoolean();
        nulls[i] = Message.nulls(Message.at(Message.at(join, "widths"), Integer.valueOf(i)).asInt());
      }
    }

    Object refused(byte[] row, int part) {
      String reason = "its part of join " + part
          + " was never received: run `tailorbird snapshot` of its table to re-read it";
      Integer none = Integer.valueOf(0);
      byte[] record = Envelope.bytes(new Object[] {"row of " + of, none, none, reason, row, null});
      return Message.of(Message.SINK, Message.NONE, Message.REFUSED, 0, Message.NONE, record);
    }

    byte[] whole(byte[][] row) {
      byte[] whole = row[0];
      for (int i = 1; i < row.length; i++) whole = Message.joined(whole, row[i], nulls[i - 1]);
      return whole;
    }

    boolean shows(byte[][] row) {
      for (int i = 0; i < inner.length; i++) if (inner[i] && row[i + 1].length == 0) return false;
      return true;
    }
  }
}
