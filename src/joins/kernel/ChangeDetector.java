package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.*;
import org.apache.spark.sql.*;
import org.apache.spark.sql.streaming.*;
import scala.Tuple2;
import scala.collection.immutable.Seq;

/**
 * Emits the changes of a fragment's rows, before and after, for groups and nodes that need both:
 * `joins.steps.change_detector`. It does not rely on before images of the log. State per row: the last version of what
 * is compared.
 */
public final class ChangeDetector extends StatefulProcessor<Object, Object, Object> {
  private final String program;
  private final Seq[][] conditions;
  private transient Receiver[] receivers;
  private transient ValueState<byte[]> last;

  public ChangeDetector(String program, Seq[][] conditions) {
    this.program = program;
    this.conditions = conditions;
  }

  public static Dataset<Row> apply(Dataset<Row> messages, String program) {
    ChangeDetector detector = new ChangeDetector(program, Filter.resolved(messages.sparkSession(), program));
    return Message.through(messages, detector, TimeMode.None());
  }

  public void init(OutputMode mode, TimeMode time) {
    receivers = new Receiver[128];
    JsonNode described = Message.at(Message.parsed(program), "change_detectors");
    for (int i = 0; i < described.size(); i++) {
      JsonNode one = Message.at(described, Integer.valueOf(i));
      JsonNode group = Message.at(one, "group"), side = Message.at(one, "side");
      int number = Message.at(one, "change_detector").asInt();
      if (group != null) receivers[number] = new Contributor(new Group(group));
      else if (side != null) receivers[number] = new PairSide(side);
      else receivers[number] = new NodeReader(Message.at(one, "node"), conditions);
    }
    last = getHandle().getValueState("told_v1", Encoders.BINARY(), TTLConfig.NONE());
  }

  public scala.collection.Iterator<Object> handleInputRows(
      Object group, scala.collection.Iterator<Object> input, TimerValues timers) {
    byte[] key = (byte[]) group;
    List<Object> out = new ArrayList<Object>(2);
    if (key[0] < 0) { // a notice
      while (input.hasNext()) out.add(input.next());
      return Message.asScala(out.iterator());
    }
    byte[] newest = null;
    while (input.hasNext()) {
      Tuple2 one = (Tuple2) input.next();
      byte[] message = (byte[]) one._2();
      if (message[0] == Message.PARTIAL) { // of a group, which no row has for its key
        out.add(one);
        continue;
      }
      if (newest == null || Message.newer(message, newest)) newest = message; // a put has more bytes than a deletion
    }
    if (newest == null) return Message.asScala(out.iterator());
    boolean put = newest[0] == Message.DIM_PUT;
    byte[] before = (byte[]) last.get(), after = put ? receivers[key[0]].compared(newest) : null;
    if (Arrays.equals(before, after)) return Message.asScala(out.iterator());
    if (put) last.update(after);
    else last.clear();
    byte[] trace = put ? Message.trace(newest) : Message.NONE;
    receivers[key[0]].emit(before, after, put ? Message.time(newest) : 0, trace, out);
    return Message.asScala(out.iterator());
  }

  /** A receiver of a row's changes. */
  private abstract static class Receiver {
    /** The part of a row's message that is compared and emitted, without its time and trace. */
    abstract byte[] compared(byte[] message);

    abstract void emit(byte[] before, byte[] after, long ts, byte[] trace, Collection<Object> out);
  }

  /** A group: a new row adds its arguments, a deleted one removes them. */
  private static final class Contributor extends Receiver {
    private final Group group;
    private final Contribution contribution;

    Contributor(Group group) {
      this.group = group;
      contribution = new Contribution(group);
    }

    byte[] compared(byte[] message) {
      return contribution.of(message);
    }

    void emit(byte[] before, byte[] after, long ts, byte[] trace, Collection<Object> out) {
      if (before != null) out.add(message(Message.TAKEN, before, ts, trace));
      if (after != null) out.add(message(Message.ADDED, after, ts, trace));
    }

    private Tuple2<byte[], byte[]> message(byte op, byte[] kept, long ts, byte[] trace) {
      int end = Contribution.argumentsAt(kept);
      byte[] key = Arrays.copyOfRange(kept, 4, end), arguments = Arrays.copyOfRange(kept, end, kept.length);
      return Message.of(group.number, key, op, ts, trace, arguments);
    }
  }

  /** One side of pairs: a row is sent to the key where it meets others. With NULL in its key it matches nothing. */
  private static final class PairSide extends Receiver {
    private final int pair;
    private final byte side;
    private final int[] id, key, at;
    private final Unmatched unmatched;

    PairSide(JsonNode described) {
      pair = Message.at(described, "pair").asInt();
      side = (byte) Message.at(described, "side").asInt();
      id = Source.ints(Message.at(described, "id"));
      key = Source.ints(Message.at(described, "key"));
      unmatched = new Unmatched(described);
      int[] all = Arrays.copyOf(id, id.length + key.length);
      System.arraycopy(key, 0, all, id.length, key.length);
      at = Texts.room(all);
    }

    byte[] compared(byte[] message) {
      return Arrays.copyOfRange(message, Message.textAt(message, Message.ROW), message.length);
    }

    void emit(byte[] before, byte[] after, long ts, byte[] trace, Collection<Object> out) {
      byte[] left = before == null ? null : place(before), here = after == null ? null : place(after);
      Texts.find(before == null ? after : before, 0, at);
      byte[] r = Texts.picked(before == null ? after : before, at, id, 1);
      r[0] = side;
      byte[] payload = after == null ? null : new Bytes(64 + after.length).putLong(ts).put(trace).put(after).array();
      if (left != null && !Arrays.equals(left, here)) out.add(Message.of(pair, left, Message.GONE, 1, r, Message.NONE));
      if (here != null) {
        byte op = Arrays.equals(left, here) ? Message.PUT : Message.NEW;
        out.add(Message.of(pair, here, op, 1, r, payload));
      }
      if (!unmatched.stays) return;
      byte[] name = Arrays.copyOfRange(r, 1, r.length);
      if (before != null && left == null && (after == null || here != null)) out.add(unmatched.result(name, null));
      if (after != null && here == null) out.add(unmatched.result(name, payload));
    }

    private byte[] place(byte[] row) {
      Texts.find(row, 0, at);
      for (int i = 0; i < key.length; i++) if (Texts.isNull(row, at[key[i]], at[key[i] + 1] - 1)) return null;
      return Texts.picked(row, at, key, 0);
    }
  }

  /** A node that reads the rows like the changes of a table. */
  private static final class NodeReader extends Receiver {
    private final Node node;
    private final int width;

    NodeReader(JsonNode described, Seq[][] conditions) {
      node = new Node(described, conditions);
      width = Message.at(described, "columns").size();
    }

    byte[] compared(byte[] message) {
      return Arrays.copyOfRange(message, Message.textAt(message, Message.ROW), message.length);
    }

    void emit(byte[] before, byte[] after, long ts, byte[] trace, Collection<Object> out) {
      Event event = new Event();
      event.op = before == null ? 'c' : after == null ? 'd' : 'u';
      event.before = image(before);
      event.after = image(after);
      event.version = 1;
      event.ts = ts;
      event.trace = trace;
      node.route(event, out);
    }

    private byte[][] image(byte[] kept) {
      if (kept == null) return null;
      int[] at = new int[width + 1];
      byte[][] image = new byte[width][];
      Texts.find(kept, 0, at);
      for (int i = 0; i < width; i++) image[i] = Arrays.copyOfRange(kept, at[i], at[i + 1] - 1);
      return image;
    }
  }
}
