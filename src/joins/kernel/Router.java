package tailorbird.kernel;

import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.spark.api.java.function.MapPartitionsFunction;
import org.apache.spark.sql.*;

/**
 * Records of the log (topic, partition, offset, key, value) → messages: `joins.route`. Debezium's envelope is read in one pass over its bytes, and the values
 * of used columns stay JSON text. What can not be read becomes a REFUSED message; nothing here raises for bad data.
 */
public final class Router implements MapPartitionsFunction<Object, Object> {
  private static final JsonFactory JSON = new JsonFactory();
  private static final byte[] NULL = "null".getBytes();
  private final String program;

  public Router(String program) {
    this.program = program;
  }

  @SuppressWarnings({"unchecked", "rawtypes"})
  public static Dataset<Row> apply(Dataset<Row> log, String program) {
    Dataset picked = log.select("topic", new String[] {"partition", "offset", "key", "value"});
    return picked.mapPartitions((MapPartitionsFunction) new Router(program), (Encoder) Message.encoder()).toDF(new String[] {"k", "m"});
  }

  public Iterator<Object> call(final Iterator<Object> log) {
    final Map<String, Source> sources = new HashMap<String, Source>();
    Source[] all = Source.all(program);
    for (int i = 0; i < all.length; i++) sources.put(all[i].topic, all[i]);
    final ArrayDeque<Object> out = new ArrayDeque<Object>();
    return new Iterator<Object>() {
      private Source emptied;
      private Iterator<Event> gone = Collections.emptyIterator(); // rows of `emptied`, told one by one as they may be many

      public boolean hasNext() {
        while (out.isEmpty() && (gone.hasNext() || log.hasNext())) {
          if (gone.hasNext()) {
            emptied.told((Event) gone.next(), out);
            continue;
          }
          Row record = (Row) log.next();
          if (record.isNullAt(4)) continue; // a tombstone repeats the delete before it
          Source source = (Source) sources.get(record.getString(0));
          Event marker = source.read(record, out);
          if (marker != null) gone = (emptied = source).vanished(marker, out);
        }
        return !out.isEmpty();
      }

      public Object next() {
        if (!hasNext()) throw new NoSuchElementException();
        return out.poll();
      }
    };
  }

  /** A change of one row: its images as JSON texts in the order of the source's columns, null where there is no row. */
  static final class Event {
    char op = ' ';
    byte[][] before, after;
    long ts, sequence, v;
    int partition;
    boolean settled;
  }

  /** A captured table: its used columns, and the nodes of the tree that read it. */
  static final class Source {
    final String topic;
    final String[] columns;
    private final Map<String, Integer> numbers = new HashMap<String, Integer>();
    private final Node[] nodes;
    private final JsonNode settled;
    private final int[] key;
    private final boolean latest; // the log makes no order
    private final Map<Integer, Long> floors = new HashMap<Integer, Long>(); // by partition, of such a log
    private final int number;
    private final String servers;

    private Source(JsonNode source, int number, String servers) {
      this.number = number;
      this.servers = servers;
      topic = Message.at(source, "topic").asText();
      settled = Message.at(source, "settled");
      key = ints(Message.at(source, "key"));
      latest = Message.at(source, "latest").asBoolean();
      Iterator known = Message.at(source, "floors").fields();
      while (known.hasNext()) {
        Map.Entry floor = (Map.Entry) known.next();
        floors.put(Integer.valueOf((String) floor.getKey()), Long.valueOf(((JsonNode) floor.getValue()).asLong()));
      }
      columns = new String[Message.at(source, "columns").size()];
      for (int i = 0; i < columns.length; i++) numbers.put(columns[i] = Message.at(Message.at(source, "columns"), Integer.valueOf(i)).asText(), Integer.valueOf(i));
      nodes = new Node[Message.at(source, "nodes").size()];
      for (int i = 0; i < nodes.length; i++) nodes[i] = new Node(Message.at(Message.at(source, "nodes"), Integer.valueOf(i)));
    }

    static Source[] all(String program) {
      JsonNode parsed = Message.parsed(program), described = Message.at(parsed, "sources");
      Source[] sources = new Source[described.size()];
      for (int i = 0; i < sources.length; i++) sources[i] = new Source(Message.at(described, Integer.valueOf(i)), i, Message.at(parsed, "servers").asText());
      return sources;
    }

    /** Tells one record's messages; gives a marker back. */
    Event read(Row record, Collection<Object> out) {
      Event event = new Event();
      event.partition = record.getInt(1);
      event.v = record.getLong(2);
      try {
        read((byte[]) record.get(4), record.isNullAt(3) ? null : (byte[]) record.get(3), event, latest);
      } catch (IOException e) {
        Object[] fields = {topic, record.get(1), record.get(2), "not an envelope: " + e.getMessage().split("\n")[0], record.get(3), record.get(4)};
        out.add(Message.of(Message.SINK, Message.NONE, Message.REFUSED, 0, Message.NONE, bytes(fields)));
        return null;
      }
      if (event.op == 't') {
        // only a marker's own sequence is asked for, and that of what it may end
        if (!latest) sequenced(record, event);
        return event;
      }
      JsonNode from = Message.at(settled, String.valueOf(event.partition));
      event.settled = from != null && event.v >= from.asLong();
      Long floor = latest ? (Long) floors.get(Integer.valueOf(event.partition)) : null;
      if (latest) event.v = 2 * event.sequence;
      if (floor == null || event.sequence >= floor.longValue()) told(event, out);
      return null;
    }

    private void sequenced(Row record, Event event) {
      try {
        read((byte[]) record.get(4), null, event, true);
      } catch (IOException e) {
        throw new IllegalStateException(e); // it was read just now
      }
    }

    /** A change's messages. */
    void told(Event event, Collection<Object> out) {
      if (!latest) {
        route(event, event.v, event.settled, out);
        return;
      }
      byte[] id = joined(event.after == null ? event.before : event.after, key, 0);
      byte[] values = event.after == null ? Message.NONE : Message.packed(event.after);
      byte[] k = ByteBuffer.allocate(1 + id.length).put((byte) number).put(id).array(), p = ByteBuffer.allocate(8 + values.length).putLong(event.ts).put(values).array();
      out.add(Message.of(Message.STAR, k, event.after == null ? Message.GONE : Message.PUT, event.v, Message.NONE, p));
    }

    /** The deletes that a marker stands for: `joins.truncation.vanished`. */
    Iterator<Event> vanished(Event marker, Collection<Object> out) {
      if (latest) {
        Long known = (Long) floors.get(Integer.valueOf(marker.partition));
        floors.put(Integer.valueOf(marker.partition), Long.valueOf(known == null ? marker.sequence : Math.max(known.longValue(), marker.sequence)));
        out.add(Message.of(Message.SINK, Message.NONE, Message.FLOOR, 0, Message.NONE, bytes(new Object[] {topic, Integer.valueOf(marker.partition), Long.valueOf(marker.sequence)})));
      }
      Map<Object, Event> rows = new LinkedHashMap<Object, Event>();
      try {
        Past past = new Past(servers, topic, marker.partition, marker.v);
        try {
          while (past.hasNext()) remember((Object[]) past.next(), rows);
        } finally {
          past.close();
        }
      } catch (ReflectiveOperationException e) {
        throw new IllegalStateException("Kafka's client: " + e, e);
      }
      drop(rows, marker, false);
      Iterator all = rows.values().iterator();
      while (all.hasNext()) {
        Event row = (Event) all.next();
        row.op = 'd';
        row.before = row.after;
        row.after = null;
        row.v = latest ? 2 * marker.sequence - 1 : marker.v; // a row seen at that moment is younger
      }
      return rows.values().iterator();
    }

    private void remember(Object[] record, Map<Object, Event> rows) {
      if (record[2] == null) return;
      Event event = new Event();
      try {
        read((byte[]) record[2], (byte[]) record[1], event, true);
      } catch (IOException e) {
        return; // it was refused when it was met
      }
      if (event.op == 't') drop(rows, event, true);
      else {
        Object at = ByteBuffer.wrap(joined(event.after == null ? event.before : event.after, key, 0));
        Event known = (Event) rows.get(at);
        if (latest && known != null && event.sequence < known.sequence) return; // repeated, or late
        rows.remove(at);
        if (event.after != null) rows.put(at, event);
      }
    }

    /** Leaves the rows that a marker ends (`ended`: the others). */
    private static void drop(Map<Object, Event> rows, Event marker, boolean ended) {
      Iterator all = rows.values().iterator();
      while (all.hasNext()) if ((((Event) all.next()).sequence < marker.sequence || marker.sequence == 0) == ended) all.remove();
    }

    void route(Event event, long v, boolean settled, Collection<Object> out) {
      for (int i = 0; i < nodes.length; i++) nodes[i].route(event, v, settled, out);
    }

    private void read(byte[] value, byte[] key, Event event, boolean sequenced) throws IOException {
      parse(value, event, true, sequenced);
      if (latest && event.op == 'd' && event.before == null && key != null) parse(key, event, false, false);
      check(event);
    }

    private void parse(byte[] text, Event event, boolean envelope, boolean sequenced) throws IOException {
      JsonParser json = JSON.createParser(text);
      try {
        if (json.nextToken() != JsonToken.START_OBJECT) throw new IOException("no JSON object");
        if (envelope) envelope(json, event, sequenced);
        else event.before = image(json);
      } finally {
        json.close();
      }
    }

    private void envelope(JsonParser json, Event event, boolean sequenced) throws IOException {
      while (json.nextToken() == JsonToken.FIELD_NAME) {
        String name = json.currentName();
        JsonToken token = json.nextToken();
        boolean object = token == JsonToken.START_OBJECT;
        if (name.equals("op") && token == JsonToken.VALUE_STRING && json.getTextLength() == 1) event.op = json.getText().charAt(0);
        else if (name.equals("before") && object) event.before = image(json);
        else if (name.equals("after") && object) event.after = image(json);
        else if (name.equals("payload") && object) envelope(json, event, sequenced); // beside Debezium's inline schema
        else if (name.equals("source") && object) {
          while (json.nextToken() == JsonToken.FIELD_NAME) {
            String field = json.currentName();
            JsonToken value = json.nextToken();
            if (field.equals("ts_ms") && value == JsonToken.VALUE_NUMBER_INT) event.ts = json.getLongValue();
            else if (sequenced && field.equals("sequence") && value.isScalarValue()) event.sequence = json.getValueAsLong();
            else json.skipChildren();
          }
        } else json.skipChildren();
      }
    }

    private byte[][] image(JsonParser json) throws IOException {
      byte[][] row = new byte[columns.length][];
      while (json.nextToken() == JsonToken.FIELD_NAME) {
        Integer column = (Integer) numbers.get(json.currentName());
        JsonToken token = json.nextToken();
        if (column != null) row[column.intValue()] = text(json, token);
        else json.skipChildren();
      }
      return row;
    }

    private void check(Event event) throws IOException {
      if ("crudt".indexOf(event.op) < 0) throw new IOException("op '" + event.op + "' in it");
      if (event.op == 't') return;
      if (event.op == 'd') event.after = null;
      else if (event.after == null) throw new IOException("op " + event.op + " without its after image");
      if (latest && event.op == 'd' && event.before != null) for (int i = 0; i < columns.length; i++) if (event.before[i] == null) event.before[i] = NULL;
      if (event.op == 'd' && event.before == null || event.op == 'u' && event.before == null && !latest) throw new IOException("op " + event.op + " without its before image: its source needs `delivery: at_least_once`");
      if (latest && event.op != 'd' || event.op == 'c' || event.op == 'r') event.before = null;
      byte[][][] images = {event.before, event.after};
      for (int i = 0; i < 2; i++)
        for (int c = 0; images[i] != null && c < columns.length; c++) if (images[i][c] == null) throw new IOException("no '" + columns[c] + "' in it");
    }
  }

  /** A value as canonical JSON: equal values of one type have equal bytes. */
  private static byte[] text(JsonParser json, JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_NULL) return NULL;
    if (token.isStructStart()) return bytes(new ObjectMapper().readTree(json));
    if (token != JsonToken.VALUE_STRING) return json.getText().getBytes();
    byte[] quoted = JsonStringEncoder.getInstance().quoteAsUTF8(json.getText());
    return ByteBuffer.allocate(quoted.length + 2).put((byte) '"').put(quoted).put((byte) '"').array();
  }

  private static byte[] bytes(Object value) {
    try {
      return new ObjectMapper().writeValueAsBytes(value); // binary as base64
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private static int[] ints(JsonNode from) {
    int[] found = new int[from.size()];
    for (int i = 0; i < found.length; i++) found[i] = Message.at(from, Integer.valueOf(i)).asInt();
    return found;
  }

  private static byte[] joined(byte[][] row, int[] columns, int from) {
    int length = from + Math.max(0, columns.length - 1);
    for (int i = 0; i < columns.length; i++) length += row[columns[i]].length;
    ByteBuffer text = ByteBuffer.allocate(length).position(from);
    for (int i = 0; i < columns.length; i++) (i > 0 ? text.put((byte) ',') : text).put(row[columns[i]]);
    return text.array();
  }

  /** One place of the tree that reads a table. */
  private static final class Node {
    private final int[] columns, id, hops; // no hops: a leaf
    private final int[][] keys;
    private final int target;

    Node(JsonNode node) {
      columns = ints(Message.at(node, "columns"));
      id = ints(Message.at(node, "id"));
      target = Message.at(node, "target").asInt();
      hops = ints(Message.at(node, "hops"));
      keys = new int[hops.length][];
      for (int i = 0; i < hops.length; i++) keys[i] = ints(Message.at(Message.at(node, "keys"), Integer.valueOf(i)));
    }

    void route(Event event, long v, boolean settled, Collection<Object> out) {
      byte[] before = event.before == null ? null : joined(event.before, columns, 8), after = event.after == null ? null : joined(event.after, columns, 8);
      if (settled && before != null && Arrays.equals(before, after)) return;
      byte[] old = before == null ? null : joined(event.before, id, 0), now = after == null ? null : joined(event.after, id, 0);
      if (after != null) ByteBuffer.wrap(after).putLong(event.ts);
      boolean same = old != null && Arrays.equals(old, now);
      if (hops.length == 0 && old != null && !same) out.add(Message.result(target, old, null, v));
      if (hops.length == 0 && now != null) out.add(Message.result(target, now, after, v));
      for (int hop = 0; hop < hops.length; hop++) {
        byte[] left = old == null ? null : key(hop, event.before, old), right = now == null ? null : key(hop, event.after, now);
        boolean moved = !same || !Arrays.equals(left, right);
        if (left != null && moved) out.add(Message.of(hops[hop], left, same ? Message.MOVED : Message.GONE, v, old, Message.NONE));
        if (right == null || hop > 0 && !moved && settled) continue;
        byte op = before == null && event.op == 'c' && settled ? Message.NEW : Message.PUT;
        out.add(Message.of(hops[hop], right, op, v, now, hop == 0 ? after : Message.NONE));
      }
    }

    /** The key at which a row waits; one of its own where a column of it is NULL. */
    private byte[] key(int hop, byte[][] row, byte[] rowId) {
      for (int i = 0; i < keys[hop].length; i++) if (row[keys[hop][i]] == NULL || Arrays.equals(row[keys[hop][i]], NULL)) return ByteBuffer.allocate(1 + rowId.length).put((byte) 0).put(rowId).array();
      return joined(row, keys[hop], 0);
    }
  }
}
