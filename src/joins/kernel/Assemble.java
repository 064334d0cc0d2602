package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;

/**
 * A star's rows of the parts that its hops send, so that only whole rows leave: `joins.steps.state.assemble_step`.
 * State per row: its own payload, and every part's.
 */
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

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group;
    List<Object> out = new ArrayList<Object>();
    if (key[0] >= 0 || stars[key[0] & ~Message.STAR] == null) { // for a step further up
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    Star star = stars[key[0] & ~Message.STAR];
    assemble(star, Arrays.copyOfRange(key, 1, key.length), told(star, input), out);
    return Message.asScala(out.iterator());
  }

  /** The newest message of a batch about a row itself, and about each of its parts. */
  private static byte[][] told(Star star, scala.collection.Iterator<Object> input) {
    byte[][] told = new byte[1 + star.nulls.length][];
    while (input.hasNext()) {
      byte[] message = (byte[]) ((Tuple2) input.next())._2();
      int part = message[0] == Message.PART ? 1 + Message.row(message)[0] : 0;
      if (told[part] == null || Message.newer(message, told[part])) told[part] = message;
    }
    return told;
  }

  private void assemble(Star star, byte[] id, byte[][] told, Collection<Object> out) {
    boolean gone = told[0] != null && told[0][0] == Message.GONE;
    byte[][] row = parts(told, gone);
    // what is whole in the batch need not be read: but where a join is inner, whether the row was shown must be known
    boolean reads = star.anyInner || Arrays.asList((Object[]) row).contains(null);
    byte[] before = reads ? (byte[]) stored.get() : null;
    byte[][] old = before == null ? null : Message.unpacked(ByteBuffer.wrap(before), row.length);
    boolean shown = old != null && star.shows(old);
    if (gone || row[0] == null && old == null) {
      if (gone) stored.clear();
      if (gone && shown) out.add(Message.result(star.target, id, null, 0));
      return;
    }
    for (int i = 0; i < row.length; i++) {
      if (row[i] == null && old == null) { // the log did not tell the row from its beginning, and did not say so
        out.add(star.refused(id, i));
        return;
      }
      if (row[i] == null) row[i] = old[i];
    }
    stored.update(Message.packed(row));
    if (star.shows(row)) out.add(Message.result(star.target, id, star.whole(row), 1));
    else if (shown) out.add(Message.result(star.target, id, null, 0));
  }

  /** The payloads that a batch tells: the row's own, and each part's; null where it does not. */
  private static byte[][] parts(byte[][] told, boolean gone) {
    byte[][] row = new byte[told.length][];
    if (told[0] != null && !gone) { // with the part of its first hop
      ByteBuffer both = ByteBuffer.wrap(Message.payload(told[0]));
      both.get(row[0] = new byte[both.getInt()]);
      both.get(row[1] = new byte[both.remaining()]);
    }
    for (int i = 1; i < row.length; i++) if (row[i] == null && told[i] != null) row[i] = Message.payload(told[i]);
    return row;
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
