package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.regex.*;
import org.apache.spark.sql.Row;
import scala.collection.immutable.Seq;

/** A captured table: its envelopes, and the nodes of the tree that read it. */
final class Source {
  private static final String TABLE = "{\"__dbz__physicalTableIdentifier\":\"";
  private static final byte[] TABLE_BEGINS = TABLE.getBytes(StandardCharsets.US_ASCII);
  private static final Pattern ESCAPE = Pattern.compile("-x((?:[0-9a-f]{4})+)-");
  final String topic;
  final String name; // of the table: the topic, or in a topic of several tables the name in its records' keys
  final int width;
  private final Envelope envelope;
  private final Node[] nodes;
  private final JsonNode compactionSafe;
  private final int[] key;
  private final boolean latest; // the log has no order
  private final boolean merged; // the topic contains only tables of one merged table
  private final Map<String, Long> truncationPoints = new HashMap<String, Long>(); // for such a log, see `place`
  private final long exactFrom; // the first exact phase whose changes groups add up; 0: no group does
  private final int[] placed; // columns that say where a row is, if every move must be read; else null
  private final int number;
  private final Map<String, Object> kafka;

  private Source(JsonNode source, int number, Map<String, Object> kafka, Seq[][] conditions) {
    this.number = number;
    this.kafka = kafka;
    topic = Message.at(source, "topic").asText();
    JsonNode sharedAs = Message.at(source, "shared_as");
    name = sharedAs == null ? topic : sharedAs.asText();
    compactionSafe = Message.at(source, "compaction_safe");
    exactFrom = Message.at(source, "exact_from") == null ? 0 : Message.at(source, "exact_from").asLong();
    placed = Message.at(source, "placed") == null ? null : ints(Message.at(source, "placed"));
    key = ints(Message.at(source, "key"));
    latest = Message.at(source, "latest").asBoolean();
    width = Message.at(source, "columns").size();
    envelope = new Envelope(source);
    merged = Message.at(source, "merged") != null;
    Iterator known = Message.at(source, "truncation_points").fields();
    while (known.hasNext()) {
      Map.Entry point = (Map.Entry) known.next();
      truncationPoints.put((String) point.getKey(), Long.valueOf(((JsonNode) point.getValue()).asLong()));
    }
    JsonNode described = Message.at(source, "nodes");
    nodes = new Node[described.size()];
    for (int i = 0; i < nodes.length; i++) {
      nodes[i] = new Node(Message.at(described, Integer.valueOf(i)), conditions);
    }
  }

  static Source[] all(String program, Seq[][] conditions) {
    JsonNode parsed = Message.parsed(program), described = Message.at(parsed, "sources");
    Source[] sources = new Source[described.size()];
    Map<String, Object> kafka = new HashMap<String, Object>();
    Iterator settings = Message.at(parsed, "kafka").fields();
    while (settings.hasNext()) {
      Map.Entry setting = (Map.Entry) settings.next();
      kafka.put((String) setting.getKey(), ((JsonNode) setting.getValue()).asText());
    }
    for (int i = 0; i < sources.length; i++) {
      sources[i] = new Source(Message.at(described, Integer.valueOf(i)), i, kafka, conditions);
    }
    return sources;
  }

  /** The name of the table in the key of a record of a topic that contains several tables; null if there is none. */
  static String tableNamed(Object key) {
    byte[] text = (byte[]) key, begins = TABLE_BEGINS;
    if (text == null || text.length <= begins.length) return null;
    for (int i = 0; i < begins.length; i++) if (text[i] != begins[i]) return null;
    int end = begins.length;
    while (end < text.length && text[end] != '"') end++;
    return new String(text, begins.length, end - begins.length, StandardCharsets.US_ASCII);
  }

  /** The database of the table that a key names. IOException if it names none. */
  static String databaseNamed(byte[] key) throws IOException {
    String name = tableNamed(key);
    String[] parts = name == null ? new String[0] : name.split("\\.", -1);
    if (parts.length != 4) throw new IOException("no table in its key");
    Matcher escape = ESCAPE.matcher(parts[2]);
    StringBuilder database = new StringBuilder();
    int at = 0;
    while (escape.find()) {
      database.append(parts[2], at, escape.start());
      String units = escape.group(1);
      for (int i = 0; i < units.length(); i += 4) {
        database.append((char) Integer.parseInt(units.substring(i, i + 4), 16));
      }
      at = escape.end();
    }
    return database.append(parts[2], at, parts[2].length()).toString();
  }

  /** The place of a truncation point: the partition, and in a merged table the name of one of its tables. */
  private String place(Object partition, Object key) {
    return merged ? partition + " " + tableNamed(key) : partition.toString();
  }

  /** Whether a record of the topic with this key is one of the table. */
  boolean owns(Object key) {
    return name.equals(topic) || name.equals(tableNamed(key));
  }

  /** Emits one record's messages; returns a marker instead. */
  Event read(Row record, Collection<Object> out) {
    Event event = new Event();
    event.partition = record.getInt(1);
    event.version = record.getLong(2);
    event.place = Message.place(event.partition, event.version);
    JsonNode from = Message.at(compactionSafe, String.valueOf(event.partition));
    boolean safe = from != null && event.version >= from.asLong();
    try {
      envelope.read((byte[]) record.get(4), record.isNullAt(3) ? null : (byte[]) record.get(3), event);
      if (exactFrom > 0 && safe) phase(event);
    } catch (IOException e) {
      boolean exact = exactFrom > 0 && safe && event.phase >= exactFrom;
      if (exact || placed != null) throw new PhaseEnded(name, exact ? event.phase : 0);
      String reason = "not an envelope: " + String.valueOf(e.getMessage()).split("\n")[0];
      out.add(refused(topic, record, reason));
      return null;
    }
    if (event.op == 't') {
      event.table = merged ? tableNamed(record.get(3)) : null;
      return event;
    }
    event.always = event.partial || !safe;
    if (event.exact && event.always) throw new PhaseEnded(name, event.phase);
    if (placed != null && isElsewhere(event)) throw new PhaseEnded(name, 0);
    Long point = latest ? (Long) truncationPoints.get(place(record.get(1), record.get(3))) : null;
    if (latest) event.version = 2 * event.sequence;
    if (point == null || event.sequence >= point.longValue()) emit(event, out);
    return null;
  }

  /** Whether the row may be at a key that the event does not name: `joins.steps.route.LogReader`. */
  private boolean isElsewhere(Event event) {
    for (int column : placed) if (event.unknown != null && event.unknown[column]) return true;
    return event.inexactAfter > event.sequence;
  }

  /** Notes whether an event is exact. An event after a phase whose changes were added up ends the query. */
  private void phase(Event event) {
    event.exact = event.phase >= exactFrom;
    if (!event.exact && event.inexactAfter >= exactFrom) throw new PhaseEnded(name, event.inexactAfter);
  }

  /** A dead letter for a record: topic, partition, offset, reason, key, value. */
  static Object refused(String topic, Row record, String reason) {
    // characters that UTF-8 cannot encode become question marks
    String readable = new String(reason.getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
    Object[] fields = {topic, record.get(1), record.get(2), readable, record.get(3), record.get(4)};
    return Message.of(Message.SINK, Message.NONE, Message.REFUSED, 0, Message.NONE, Envelope.bytes(fields));
  }

  /** Emits a change's messages. */
  void emit(Event event, Collection<Object> out) {
    if (!latest) {
      route(event, out);
      return;
    }
    byte[] id = joined(event.after == null ? event.before : event.after, key, 0);
    byte[] values = event.after == null ? Message.NONE : Message.packed(event.after);
    byte[] k = ByteBuffer.allocate(1 + id.length).put((byte) number).put(id).array();
    byte[] p = ByteBuffer.allocate(16 + values.length).putLong(event.ts).putLong(event.place).put(values).array();
    byte op = event.after == null ? Message.GONE : Message.PUT;
    out.add(Message.of(Message.MULTI_JOIN, k, op, event.version, Message.NONE, p));
  }

  void route(Event event, Collection<Object> out) {
    for (int i = 0; i < nodes.length; i++) nodes[i].route(event, out);
  }

  /**
   * Returns the changes that a marker stands for: `joins.steps.truncation.repaired`. A log without order also gets a
   * new truncation point.
   */
  Iterator<Event> marked(Event marker, Collection<Object> out) {
    if (latest) {
      Integer partition = Integer.valueOf(marker.partition);
      String table = merged ? marker.table : name, place = merged ? partition + " " + table : partition.toString();
      Long sequence = Long.valueOf(marker.sequence), known = (Long) truncationPoints.get(place);
      truncationPoints.put(
          place, known == null ? sequence : Long.valueOf(Math.max(known.longValue(), marker.sequence)));
      byte[] point = Envelope.bytes(new Object[] {table, partition, sequence});
      out.add(Message.of(Message.SINK, Message.NONE, Message.TRUNCATION_POINT, 0, Message.NONE, point));
    }
    return new MarkerRepair(this, marker);
  }

  PartitionReader past(Event marker) throws ReflectiveOperationException {
    return new PartitionReader(kafka, topic, marker.partition, marker.version);
  }

  boolean latest() {
    return latest;
  }

  /**
   * Reads a record as an event; null for a tombstone, the record of a table that the marker does not concern, and one
   * that was refused earlier.
   */
  Event again(Object[] record, Event marker) {
    if (record[2] == null || !owns(record[1])) return null;
    if (merged && !marker.table.equals(tableNamed(record[1]))) return null;
    Event event = new Event();
    event.partition = marker.partition;
    event.version = ((Long) record[0]).longValue();
    event.place = Message.place(event.partition, event.version);
    try {
      envelope.read((byte[]) record[2], (byte[]) record[1], event);
    } catch (IOException e) {
      return null;
    }
    return event;
  }

  /** The primary key of an event's row. */
  byte[] keyOf(Event event) {
    return joined(event.after == null ? event.before : event.after, key, 0);
  }

  static int[] ints(JsonNode from) {
    int[] found = new int[from.size()];
    for (int i = 0; i < found.length; i++) found[i] = Message.at(from, Integer.valueOf(i)).asInt();
    return found;
  }

  /** Some values of a row joined with commas, after `from` free bytes. */
  static byte[] joined(byte[][] row, int[] columns, int from) {
    int length = from + Math.max(0, columns.length - 1);
    for (int i = 0; i < columns.length; i++) length += row[columns[i]].length;
    ByteBuffer text = ByteBuffer.allocate(length).position(from);
    for (int i = 0; i < columns.length; i++) (i > 0 ? text.put((byte) ',') : text).put(row[columns[i]]);
    return text.array();
  }
}
