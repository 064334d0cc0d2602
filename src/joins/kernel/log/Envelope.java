package tailorbird.kernel;

import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.core.io.JsonStringEncoder;
import com.fasterxml.jackson.databind.*;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.*;

/** Reads one table's envelopes: `joins.steps.envelope`. It reads only used columns, each in the plan's type. */
final class Envelope {
  private static final int DEEPEST = 64, ENDLESS = Integer.MAX_VALUE;
  private static final long MOST = 1L << 62; // of a sequence: `latest` doubles it
  private static final JsonFactory JSON = bounded();
  static final byte[] NULL = "null".getBytes();
  private static final byte[] UNFIT = new byte[0];
  private final String[] columns;
  private final Fit[] fits;
  private final byte[][] defaults; // of columns that were added later
  private final boolean[] keys;
  private final JsonNode ends; // by partition: older records precede the plan
  private final Map<String, Integer> numbers = new HashMap<String, Integer>();
  private final boolean latest; // the log has no order
  private final int merged; // the column of a merged table with the database, which the key names; -1: none
  private final PlainEnvelope plain;
  private final String[] faults = new String[3]; // of the last `before`, `after` and `source` of a record

  Envelope(JsonNode source) {
    latest = Message.at(source, "latest").asBoolean();
    ends = Message.at(source, "ends");
    merged = Message.at(source, "merged") == null ? -1 : Message.at(source, "merged").asInt();
    JsonNode names = Message.at(source, "columns");
    columns = new String[names.size()];
    fits = new Fit[columns.length];
    defaults = new byte[columns.length][];
    keys = new boolean[columns.length];
    for (int i = 0; i < columns.length; i++) {
      Integer number = Integer.valueOf(i);
      columns[i] = Message.at(names, number).asText();
      fits[i] = new Fit(Message.at(Message.at(source, "types"), number));
      defaults[i] = Message.at(Message.at(source, "defaults"), number).asText().getBytes(StandardCharsets.UTF_8);
      numbers.put(columns[i], number);
    }
    plain = new PlainEnvelope(columns, fits);
    int[] key = Source.ints(Message.at(source, "key"));
    for (int i = 0; i < key.length; i++) keys[key[i]] = true;
  }

  private static JsonFactory bounded() {
    JsonFactory json = new JsonFactory();
    StreamReadConstraints.Builder limits = StreamReadConstraints.builder().maxNestingDepth(DEEPEST);
    limits.maxNumberLength(ENDLESS).maxStringLength(ENDLESS).maxNameLength(ENDLESS);
    json.setStreamReadConstraints(limits.build());
    return json;
  }

  /** Fills the event, whose partition and offset are set; IOException with the reason if it is no envelope. */
  void read(byte[] value, byte[] key, Event event) throws IOException {
    try {
      Unicode.check(value);
      event.phase = event.inexactAfter = 0;
      if (!plain.read(value, event)) {
        event.phase = event.inexactAfter = 0;
        event.op = ' ';
        event.before = event.after = null;
        event.ts = event.sequence = 0;
        event.partial = false;
        parse(value, event, true);
      }
      if (latest && event.op == 'd' && event.before == null && key != null) {
        Unicode.check(key);
        parse(key, event, false);
      }
      check(event, key);
    } catch (RuntimeException e) { // invalid records must never end the query
      throw new IOException(String.valueOf(e.getMessage()), e);
    }
  }

  private void parse(byte[] text, Event event, boolean envelope) throws IOException {
    JsonParser json = JSON.createParser(text);
    boolean read = false;
    try {
      if (json.nextToken() != JsonToken.START_OBJECT) throw new IOException("no JSON object");
      Arrays.fill(faults, null);
      if (envelope) envelope(json, event);
      else event.before = image(json);
      for (int i = 0; i < faults.length; i++) if (faults[i] != null) throw new IOException(faults[i]);
      if (json.nextToken() != null) throw new IOException("more than a JSON object");
      read = true;
    } finally {
      if (!read) event.phase = 0;
      json.close();
    }
  }

  private void envelope(JsonParser json, Event event) throws IOException {
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String name = json.currentName();
      JsonToken token = json.nextToken();
      if (name.equals("op")) {
        event.op = token == JsonToken.VALUE_STRING && json.getTextLength() == 1 ? json.getText().charAt(0) : ' ';
        skip(json, token);
      } else if (name.equals("before")) event.before = isObject(json, token, 0) ? image(json) : null;
      else if (name.equals("after")) event.after = isObject(json, token, 1) ? image(json) : null;
      else if (name.equals("payload") && token == JsonToken.START_OBJECT) envelope(json, event); // next to a schema
      else if (name.equals("source")) origin(json, event, isObject(json, token, 2));
      else skip(json, token);
    }
  }

  private boolean isObject(JsonParser json, JsonToken token, int which) throws IOException {
    boolean wrong = token != JsonToken.START_OBJECT && token != JsonToken.VALUE_NULL;
    faults[which] = wrong ? json.currentName() + " is no object" : null;
    if (wrong) skip(json, token);
    return token == JsonToken.START_OBJECT;
  }

  private void origin(JsonParser json, Event event, boolean there) throws IOException {
    event.ts = event.sequence = 0;
    event.partial = false;
    Long ts = Long.valueOf(0), sequence = ts, phase = ts, after = ts; // null: no number; of a field the last one counts
    while (there && json.nextToken() == JsonToken.FIELD_NAME) {
      String field = json.currentName();
      JsonToken value = json.nextToken();
      if (field.equals("ts_ms")) ts = number(json, value, Long.MAX_VALUE);
      else if (field.equals("sequence")) {
        sequence = value == JsonToken.VALUE_STRING ? digits(json.getText()) : number(json, value, MOST - 1);
      } else if (field.equals("partial")) event.partial = value == JsonToken.VALUE_TRUE;
      else if (field.equals("exact")) phase = number(json, value, MOST - 1);
      else if (field.equals("inexact_after")) after = number(json, value, MOST - 1);
      if (!value.isScalarValue() || value.isNumeric()) skip(json, value);
    }
    String fault = ts == null ? "ts_ms" : sequence == null ? "sequence" : null;
    if (fault == null) fault = phase == null ? "exact" : after == null ? "inexact_after" : null;
    if (fault != null) faults[2] = fault + " is no number";
    event.ts = ts == null ? 0 : ts.longValue();
    event.sequence = sequence == null ? 0 : sequence.longValue();
    event.phase = phase == null ? 0 : phase.longValue();
    event.inexactAfter = after == null ? 0 : after.longValue();
  }

  private static Long number(JsonParser json, JsonToken value, long most) throws IOException {
    if (value == JsonToken.VALUE_NULL) return Long.valueOf(0);
    if (value != JsonToken.VALUE_NUMBER_INT || json.getTextLength() > 20) return null;
    try {
      long number = Long.parseLong(json.getText());
      return number > most || number < -most - 1 ? null : Long.valueOf(number);
    } catch (NumberFormatException e) {
      return null;
    }
  }

  private static Long digits(String text) {
    int start = text.startsWith("-") ? 1 : 0; // other producers may write a list in a text
    boolean number = text.length() > start && text.length() <= start + 18;
    for (int i = start; number && i < text.length(); i++) number = text.charAt(i) >= '0' && text.charAt(i) <= '9';
    return Long.valueOf(number ? Long.parseLong(text) : 0);
  }

  private byte[][] image(JsonParser json) throws IOException {
    byte[][] row = new byte[columns.length][];
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      Integer column = (Integer) numbers.get(json.currentName());
      JsonToken token = json.nextToken();
      if (column == null) {
        skip(json, token);
        continue;
      }
      byte[] value = fits[column.intValue()].of(json, token);
      row[column.intValue()] = value == null ? UNFIT : value;
    }
    return row;
  }

  private void check(Event event, byte[] key) throws IOException {
    if ("crudt".indexOf(event.op) < 0) throw new IOException("op '" + event.op + "' in it");
    if (event.op == 't') {
      if (merged >= 0) Source.databaseNamed(key);
      return;
    }
    if (event.op == 'd') event.after = null;
    else if (event.after == null) throw new IOException("op " + event.op + " without its after image");
    boolean needed = event.op == 'd' || event.op == 'u' && !latest;
    if (needed && event.before == null) {
      String remedy = "its source needs `delivery: at_least_once`";
      throw new IOException("op " + event.op + " without its before image: " + remedy);
    }
    if (latest && event.op != 'd' || event.op == 'c' || event.op == 'r') event.before = null;
    if (merged >= 0) {
      byte[] database = quoted(Source.databaseNamed(key));
      if (event.before != null) event.before[merged] = database;
      if (event.after != null) event.after[merged] = database;
    }
    complete(event.before, event, true);
    complete(event.after, event, false);
  }

  /** Reads the values of one image. `lenient` (before images): a value that does not fit its type reads as NULL. */
  private void complete(byte[][] image, Event event, boolean lenient) throws IOException {
    for (int c = 0; image != null && c < columns.length; c++) {
      if (image[c] == null) {
        if (keys[c]) throw new IOException("no '" + columns[c] + "' in it");
        if (added(event)) image[c] = defaults[c];
        else unknown(image, c, event);
        event.partial = true;
        event.blind |= lenient;
      } else if (image[c] == UNFIT) {
        if (!lenient || keys[c]) throw new IOException("'" + columns[c] + "' in it does not fit " + fits[c]);
        unknown(image, c, event);
        event.partial = event.blind = true;
      }
    }
  }

  private static void unknown(byte[][] image, int column, Event event) {
    image[column] = NULL;
    if (event.unknown == null) event.unknown = new boolean[image.length];
    event.unknown[column] = true;
  }

  /** Whether a missing column was added later; otherwise it was dropped. */
  private boolean added(Event event) {
    JsonNode end = Message.at(ends, String.valueOf(event.partition));
    return end != null && event.version < end.asLong();
  }

  static byte[] quoted(String text) {
    byte[] quoted = JsonStringEncoder.getInstance().quoteAsUTF8(text);
    return ByteBuffer.allocate(quoted.length + 2).put((byte) '"').put(quoted).put((byte) '"').array();
  }

  /** Skips an unused value; IOException if it contains a number beyond all types. */
  static void skip(JsonParser json, JsonToken token) throws IOException {
    for (int depth = 0; ; token = json.nextToken()) {
      if (token == null) throw new IOException("it ends too early");
      if (token.isStructStart()) depth++;
      else if (token.isStructEnd()) depth--;
      else if (token.isNumeric()) finite(json, token);
      if (depth == 0) return;
    }
  }

  static void finite(JsonParser json, JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_NUMBER_INT && json.getTextLength() < 300) return;
    if (Double.isInfinite(Double.parseDouble(json.getText()))) throw new IOException("a number beyond all types");
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
