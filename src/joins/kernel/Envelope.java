package tailorbird.kernel;

import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

/** Reads one table's envelopes: `joins.route.Reader`. Only used columns are read. */
final class Envelope {
  private static final JsonFactory JSON = new JsonFactory();
  private static final byte[] NULL = "null".getBytes();
  private final String[] columns;
  private final Map<String, Integer> numbers = new HashMap<String, Integer>();
  private final boolean latest; // the log makes no order

  Envelope(JsonNode source) {
    latest = Message.at(source, "latest").asBoolean();
    JsonNode names = Message.at(source, "columns");
    columns = new String[names.size()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = Message.at(names, Integer.valueOf(i)).asText();
      numbers.put(columns[i], Integer.valueOf(i));
    }
  }

  /** Fills the event; IOException with the reason for what is no envelope, whatever it contains. */
  void read(byte[] value, byte[] key, Event event) throws IOException {
    try {
      parse(value, event, true);
      if (latest && event.op == 'd' && event.before == null && key != null) parse(key, event, false);
      check(event);
    } catch (RuntimeException e) { // a lone surrogate, a number beyond all types
      throw new IOException(String.valueOf(e.getMessage()), e);
    }
  }

  private void parse(byte[] text, Event event, boolean envelope) throws IOException {
    JsonParser json = JSON.createParser(text);
    try {
      if (json.nextToken() != JsonToken.START_OBJECT) throw new IOException("no JSON object");
      if (envelope) envelope(json, event);
      else event.before = image(json);
    } finally {
      json.close();
    }
  }

  private void envelope(JsonParser json, Event event) throws IOException {
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String name = json.currentName();
      JsonToken token = json.nextToken();
      boolean object = token == JsonToken.START_OBJECT;
      if (name.equals("op") && token == JsonToken.VALUE_STRING && json.getTextLength() == 1) {
        event.op = json.getText().charAt(0);
      } else if (name.equals("before") && object) event.before = image(json);
      else if (name.equals("after") && object) event.after = image(json);
      else if (name.equals("payload") && object) envelope(json, event); // beside Debezium's inline schema
      else if (name.equals("source") && object) origin(json, event);
      else json.skipChildren();
    }
  }

  private static void origin(JsonParser json, Event event) throws IOException {
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String field = json.currentName();
      JsonToken value = json.nextToken();
      if (field.equals("ts_ms") && value == JsonToken.VALUE_NUMBER_INT) event.ts = json.getLongValue();
      else if (field.equals("sequence") && value.isScalarValue()) event.sequence = json.getValueAsLong();
      else if (field.equals("partial") && value == JsonToken.VALUE_TRUE) event.partial = true;
      else json.skipChildren();
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
    if (latest && event.op == 'd' && event.before != null) {
      for (int i = 0; i < columns.length; i++) if (event.before[i] == null) event.before[i] = NULL;
    }
    boolean needed = event.op == 'd' || event.op == 'u' && !latest;
    if (needed && event.before == null) {
      String remedy = "its source needs `delivery: at_least_once`";
      throw new IOException("op " + event.op + " without its before image: " + remedy);
    }
    if (latest && event.op != 'd' || event.op == 'c' || event.op == 'r') event.before = null;
    complete(event.before);
    complete(event.after);
  }

  private void complete(byte[][] image) throws IOException {
    for (int c = 0; image != null && c < columns.length; c++) {
      if (image[c] == null) throw new IOException("no '" + columns[c] + "' in it");
    }
  }

  /** A value as canonical JSON: equal values of one type have equal bytes. */
  private static byte[] text(JsonParser json, JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_NULL) return NULL;
    if (token.isStructStart()) return bytes(new ObjectMapper().readTree(json));
    if (token != JsonToken.VALUE_STRING) return json.getText().getBytes(StandardCharsets.UTF_8);
    byte[] quoted = JsonStringEncoder.getInstance().quoteAsUTF8(json.getText());
    return ByteBuffer.allocate(quoted.length + 2).put((byte) '"').put(quoted).put((byte) '"').array();
  }

  static boolean isNull(byte[] text) {
    return text == NULL || Arrays.equals(text, NULL);
  }

  static byte[] bytes(Object value) {
    try {
      return new ObjectMapper().writeValueAsBytes(value); // binary as base64
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }
}
