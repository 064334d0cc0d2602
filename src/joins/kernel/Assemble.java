package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/** A star's rows of the parts that its hops send, so that only whole rows leave: `joins.steps.state.assemble_step`. State per row: its payload, every part's. */
public final class Assemble extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private transient Star[] stars;
  private transient ValueState<byte[]> stored;

  public Assemble(String program) {
    this.program = program;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    return Message.through(messages, new Assemble(program), TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    stars = new Star[128];
    JsonNode described = Message.at(Message.parsed(program), "stars");
    for (int i = 0; i < described.size(); i++) {
      JsonNode star = Message.at(described, Integer.valueOf(i));
      stars[Message.at(star, "star").asInt()] = new Star(star);
    }
    stored = getHandle().getValueState("row_v1", Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] k = (byte[]) group;
    Star star = k[0] < 0 ? stars[k[0] & 0x7F] : null;
    List<Object> out = new ArrayList<Object>();
    byte[][] row = star == null ? null : new byte[1 + star.nulls.length][]; // its own payload, then the parts
    byte[][] told = row == null ? null : new byte[row.length][];
    while (input.hasNext()) {
      Object message = input.next();
      byte[] m = (byte[]) ((Tuple2) message)._2();
      if (star == null) out.add(message); // for a step further up
      else if (m[0] == Message.PART) {
        int part = 1 + Message.r(m)[0];
        if (told[part] == null || Message.newer(m, told[part])) told[part] = m;
      }
      else if (told[0] == null || Message.newer(m, told[0])) told[0] = m;
    }
    if (star == null) return Message.asScala(out.iterator());
    boolean gone = told[0] != null && told[0][0] == Message.GONE;
    if (told[0] != null && !gone) {
      ByteBuffer both = ByteBuffer.wrap(Message.p(told[0]));
      both.get(row[0] = new byte[both.getInt()]);
      both.get(row[1] = new byte[both.remaining()]);
    }
    for (int i = 1; i < row.length; i++) if (row[i] == null && told[i] != null) row[i] = Message.p(told[i]);
    byte[] id = Arrays.copyOfRange(k, 1, k.length);
    // what is whole in the batch need not be read: but where a join is inner, whether the row was shown must be known
    byte[] before = star.anyInner || Arrays.asList((Object[]) row).contains(null) ? (byte[]) stored.get() : null;
    byte[][] old = before == null ? null : Message.unpacked(ByteBuffer.wrap(before), row.length);
    boolean shown = old != null && star.shows(old);
    if (gone || row[0] == null && old == null) {
      if (gone) stored.clear();
      if (gone && shown) out.add(Message.result(star.target, id, null, 0));
      return Message.asScala(out.iterator());
    }
    for (int i = 0; i < row.length; i++) {
      if (row[i] == null && old == null) { // the log did not tell the row from its beginning, and did not say so
        out.add(star.refused(id, i));
        return Message.asScala(out.iterator());
      }
      if (row[i] == null) row[i] = old[i];
    }
    stored.update(Message.packed(row));
    byte[] whole = row[0];
    for (int i = 1; i < row.length; i++) whole = Message.joined(whole, row[i], star.nulls[i - 1]);
    if (star.shows(row)) out.add(Message.result(star.target, id, whole, 1));
    else if (shown) out.add(Message.result(star.target, id, null, 0));
    return Message.asScala(out.iterator());
  }

  private static final class Star {
    final int target;
    final byte[][] nulls;
    final boolean[] inner;
    private final String of;
    boolean anyInner;

    Star(JsonNode star) {
      target = Message.at(star, "target").asInt();
      of = Message.at(star, "of").asText();
      inner = new boolean[Message.at(star, "inner").size()];
      nulls = new byte[inner.length][];
      for (int i = 0; i < inner.length; i++) {
        anyInner |= inner[i] = Message.at(Message.at(star, "inner"), Integer.valueOf(i)).asBoolean();
        nulls[i] = Message.nulls(Message.at(Message.at(star, "widths"), Integer.valueOf(i)).asInt());
      }
    }

    Object refused(byte[] row, int join) {
      String reason = "its part of join " + join + " was never told: `tailorbird snapshot` of its table reads it again";
      Integer none = Integer.valueOf(0);
      byte[] told = Envelope.bytes(new Object[] {"row of " + of, none, none, reason, row, null});
      return Message.of(Message.SINK, Message.NONE, Message.REFUSED, 0, Message.NONE, told);
    }

    boolean shows(byte[][] row) {
      for (int i = 0; i < inner.length; i++) if (inner[i] && row[i + 1].length == 0) return false;
      return true;
    }
  }
}
