package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;
import scala.collection.immutable.Seq;

/**
 * Turns records of an append-only table (topic, partition, offset, key, value) into one side of a join by time:
 * `joins.steps.by_time`. A row in time is a message to the side; its version is the time in microseconds and its row
 * id the join key. Without a payload only its time counts. Late rows, and records that such a table's log must not
 * contain, are REFUSED. Spark's join would drop the former silently, and cannot detect the latter.
 */
public final class Timed implements MapPartitionsFunction<Object, Object> {
  private static final long MILLIS = 1000;
  private static final String OF = "of an append-only table";
  private final String program;
  private final Seq[][] conditions;

  public Timed(String program, Seq[][] conditions) {
    this.program = program;
    this.conditions = conditions;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  public static Dataset<Row> apply(Dataset<Row> log, String program) {
    Dataset picked = log.select("topic", new String[] {"partition", "offset", "key", "value"});
    Seq[][] conditions = Filter.resolved(log.sparkSession(), program);
    MapPartitionsFunction timed = (MapPartitionsFunction) new Timed(program, conditions);
    return picked.mapPartitions(timed, (Encoder) Message.encoder()).toDF(new String[] {"k", "m"});
  }

  public Iterator<Object> call(final Iterator<Object> log) {
    final Side side = new Side(Message.parsed(program), conditions);
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    return new Iterator<Object>() {
      public boolean hasNext() {
        while (out.isEmpty() && log.hasNext()) side.read((Row) log.next(), out);
        return !out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return out.poll();
      }
    };
  }

  /** One side in one batch. */
  private static final class Side {
    private final Envelope envelope;
    private final String topic;
    private final String sharedAs; // null if the topic has no other table
    private final int[] columns, id, key;
    private final int target, time, number;
    private final Filter filter; // null: every row passes
    private final Unmatched unmatched;
    private final long watermark; // in milliseconds

    Side(JsonNode parsed, Seq[][] conditions) {
      JsonNode source = Message.at(parsed, "source"), node = Message.at(parsed, "node");
      envelope = new Envelope(source);
      topic = Message.at(source, "topic").asText();
      sharedAs = Message.at(source, "shared_as") == null ? null : Message.at(source, "shared_as").asText();
      columns = Source.ints(Message.at(node, "columns"));
      id = Source.ints(Message.at(node, "id"));
      key = Source.ints(Message.at(parsed, "key"));
      time = Message.at(parsed, "time").asInt();
      target = Message.at(node, "target").asInt();
      number = Message.at(node, "number").asInt();
      int condition = Message.at(node, "condition").asInt();
      int[] uses = Source.ints(Message.at(node, "uses"));
      filter = condition < 0 ? null : new Filter(conditions[condition], uses, columns);
      unmatched = new Unmatched(Message.at(parsed, "alone"));
      watermark = Watermark.ofThisBatch(Message.at(parsed, "checkpoint").asText());
    }

    void read(Row record, Collection<Object> out) {
      if (record.isNullAt(4)) return; // a tombstone repeats the delete before it
      if (sharedAs != null && !sharedAs.equals(Source.tableNamed(record.get(3)))) return;
      Event event = new Event();
      event.partition = record.getInt(1);
      event.version = record.getLong(2);
      try {
        envelope.read((byte[]) record.get(4), record.isNullAt(3) ? null : (byte[]) record.get(3), event);
      } catch (IOException e) {
        out.add(Source.refused(topic, record, "not an envelope: " + String.valueOf(e.getMessage()).split("\n")[0]));
        return;
      }
      String fault = fault(event);
      if (fault == null) inserted(event, record, out);
      else out.add(Source.refused(topic, record, fault));
    }

    private static String fault(Event event) {
      if (event.op == 't') return "TRUNCATE, or the end of a repeated snapshot, " + OF + ": its rows stay";
      if (event.after == null) return "DELETE " + OF + ": the row stays";
      return event.before == null ? null : "UPDATE " + OF + ": the row stays as it was";
    }

    private void inserted(Event event, Row record, Collection<Object> out) {
      boolean passes = filter == null || filter.holds(event.after);
      Long at = Times.moment(event.after[time]);
      byte[] trace = Message.seen(number, Message.place(event.partition, event.version));
      byte[] name = Source.joined(event.after, id, 0);
      byte[] payload = Source.joined(event.after, columns, Message.TIME + trace.length);
      ByteBuffer.wrap(payload).putLong(event.ts).put(trace);
      if (passes && (at == null || meetsNothing(event.after))) {
        if (unmatched.stays) out.add(unmatched.result(name, payload));
        passes = false;
      }
      if (at == null) return;
      if (at.longValue() > watermark * MILLIS) {
        byte[] met = Source.joined(event.after, key, 0), none = Message.NONE;
        if (passes) out.add(Message.of(target, name, Message.DIM_PUT, at.longValue(), met, payload));
        else out.add(Message.of(target, none, Message.DIM_GONE, at.longValue(), none, none));
      } else if (passes) {
        String moment = new String(event.after[time], StandardCharsets.UTF_8).replace("\"", "");
        String reached = Watermark.text(watermark);
        out.add(Source.refused(topic, record, "late: its time is " + moment + ", the watermark was " + reached));
      }
    }

    private boolean meetsNothing(byte[][] row) {
      for (int i = 0; i < key.length; i++) if (Envelope.isNull(row[key[i]])) return true;
      return false;
    }
  }
}
