package tailorbird.kernel;

import com.fasterxml.jackson.core.*;
import com.fasterxml.jackson.databind.JsonNode;
import java.io.IOException;
import java.math.*;
import java.nio.charset.StandardCharsets;
import java.util.regex.*;

/**
 * Converts a value of the log to canonical JSON of the type that the plan was compiled with: `joins.query.convert`. A
 * value that already has its type's form, as nearly all do, is only checked.
 */
final class Fit {
  private static final int OPAQUE = 0, INT = 1, DECIMAL = 2, FLOAT = 3, BOOL = 4, DATE = 5, MOMENT = 6, TEXT = 7,
      SPATIAL = 8, LIST = 9;
  private static final Pattern NUMBER = Pattern.compile("-?[0-9]{1,100}(\\.[0-9]{1,100})?");
  private static final Pattern DATED = Pattern.compile(
      "([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\\.([0-9]{1,9}))?)?Z?");
  private static final String DAY = "0000-00-00Z", MOMENTS = "0000-00-00T00:00:00"; // forms
  private static final BigInteger LOWEST = BigInteger.ONE.shiftLeft(63).negate();
  private static final BigInteger HIGHEST = BigInteger.ONE.shiftLeft(64).subtract(BigInteger.ONE);
  private static final int DIGITS = 15; // of a float: every writer gives the same 15 digits
  private final int kind, precision, scale, safe; // integers of up to `safe` characters need no further check
  private final BigInteger least, most;
  private final String name;

  Fit(JsonNode type) {
    name = Message.at(type, Integer.valueOf(0)).asText();
    precision = Message.at(type, Integer.valueOf(1)).asInt();
    scale = Message.at(type, Integer.valueOf(2)).asInt();
    int bits = name.startsWith("int") ? Integer.parseInt(name.substring(3)) - 1 : 0;
    boolean unsigned = name.equals("uint64");
    most = unsigned ? HIGHEST : BigInteger.ONE.shiftLeft(bits).subtract(BigInteger.ONE);
    least = unsigned ? BigInteger.ZERO : most.add(BigInteger.ONE).negate();
    safe = most.toString().length() - 1;
    if (bits > 0 || unsigned) kind = INT;
    else if (name.equals("decimal")) kind = DECIMAL;
    else if (name.startsWith("float")) kind = FLOAT;
    else if (name.equals("bool")) kind = BOOL;
    else if (name.equals("date")) kind = DATE;
    else if (name.equals("datetime") || name.equals("timestamp")) kind = MOMENT;
    else if (name.equals("point") || name.equals("geometry")) kind = SPATIAL;
    else if (name.equals("list")) kind = LIST; // of numbers: a vector
    else kind = name.equals("string") || name.equals("json") ? TEXT : OPAQUE; // no other value becomes binary or a time
  }

  /** Whether a text between quotes, without escapes, is a value as it stands. */
  boolean isText(byte[] text, int start, int end) {
    if (kind == TEXT || kind == OPAQUE) return true;
    int from = start + 1, to = end - 1;
    if (kind == DECIMAL) return isDecimal(text, from, to);
    return kind == DATE ? to - from == 11 && formed(text, from, to, DAY) : kind == MOMENT && isMoment(text, from, to);
  }

  /** Whether a number without exponent is a value as it stands. */
  boolean isNumber(byte[] text, int start, int end, boolean whole) {
    if (kind == FLOAT) return true;
    if (kind != INT || !whole || end - start > safe) return false;
    return text[start] != '-' || least.signum() < 0 && text[start + 1] != '0';
  }

  boolean isBool() {
    return kind == BOOL;
  }

  /** The value at the parser's token, null where it has no exact one. The parser always moves past it. */
  byte[] of(JsonParser json, JsonToken token) throws IOException {
    if (token == JsonToken.VALUE_NULL) return Envelope.NULL;
    if (token == JsonToken.VALUE_STRING) {
      String text = json.getText();
      if (kind == TEXT || kind == OPAQUE) return Envelope.quoted(text);
      if (kind == SPATIAL) return Wkt.ofPair(text);
      if (kind == FLOAT && isBeyondJson(text)) return ascii('"' + text + '"');
      byte[] quoted = ('"' + text + '"').getBytes(StandardCharsets.UTF_8);
      boolean fits = kind == DECIMAL || kind == DATE || kind == MOMENT;
      return fits && isText(quoted, 0, quoted.length) ? quoted : converted(token, text);
    }
    if (token == JsonToken.VALUE_NUMBER_INT && kind == INT && json.getTextLength() <= safe) {
      String text = json.getText();
      if (text.charAt(0) != '-' || least.signum() < 0 && text.charAt(1) != '0') return ascii(text);
    }
    if (token == JsonToken.START_OBJECT && kind == SPATIAL) return Wkt.of(json);
    if (token == JsonToken.START_ARRAY && kind == LIST) return numbers(json);
    if (token.isStructStart()) {
      Envelope.skip(json, token);
      return null;
    }
    if (token.isNumeric()) Envelope.finite(json, token);
    if (token.isNumeric() && kind == FLOAT) return ascii(json.getText());
    if (token.isBoolean() && kind == BOOL) return ascii(json.getText());
    return converted(token, json.getText());
  }

  /** Whether a text is a double that JSON cannot express as a number. */
  private static boolean isBeyondJson(String text) {
    return text.equals("NaN") || text.equals("Infinity") || text.equals("-Infinity");
  }

  /** An array of numbers as written, null for an array of anything else. */
  private static byte[] numbers(JsonParser json) throws IOException {
    StringBuilder out = new StringBuilder("[");
    boolean all = true;
    for (JsonToken one = json.nextToken(); one != JsonToken.END_ARRAY; one = json.nextToken()) {
      if (one == null) throw new IOException("it ends too early");
      if (one.isNumeric()) Envelope.finite(json, one);
      else all = false;
      if (all) out.append(out.length() > 1 ? "," : "").append(json.getText());
      else Envelope.skip(json, one);
    }
    return all ? ascii(out.append(']').toString()) : null;
  }

  private boolean isDecimal(byte[] text, int from, int to) {
    int start = from < to && text[from] == '-' ? from + 1 : from, whole = to - start - (scale == 0 ? 0 : scale + 1);
    if (whole < 1 || whole + scale > precision || whole > 1 && text[start] == '0') return false;
    for (int i = start; i < to; i++) {
      if (i == start + whole ? text[i] != '.' : text[i] < '0' || text[i] > '9') return false;
    }
    return true;
  }

  private static boolean isMoment(byte[] text, int from, int to) {
    int last = to - from - 1;
    if (last < 19 || text[to - 1] != 'Z' || !formed(text, from, to, MOMENTS)) return false;
    if (last == 19) return true;
    if (text[from + 19] != '.' || last < 21 || last > 29 || text[to - 2] == '0') return false;
    for (int i = from + 20; i < to - 1; i++) if (text[i] < '0' || text[i] > '9') return false;
    return true;
  }

  private static boolean formed(byte[] text, int from, int to, String form) {
    if (to - from < form.length()) return false;
    for (int i = 0; i < form.length(); i++) {
      char wanted = form.charAt(i);
      byte c = text[from + i];
      if (wanted == '0' ? c < '0' || c > '9' : c != wanted) return false;
    }
    return true;
  }

  private byte[] converted(JsonToken token, String text) {
    if (kind == DATE || kind == MOMENT) return token == JsonToken.VALUE_STRING ? dated(text) : null;
    if (kind == OPAQUE || kind == SPATIAL || kind == LIST) return null;
    boolean whole = token == JsonToken.VALUE_NUMBER_INT, bool = token.isBoolean();
    if (bool && kind != INT && kind != DECIMAL) return null;
    if (kind == BOOL && !whole) return null;
    BigDecimal number;
    if (bool) number = token == JsonToken.VALUE_TRUE ? BigDecimal.ONE : BigDecimal.ZERO;
    else if (token == JsonToken.VALUE_STRING) number = NUMBER.matcher(text).matches() ? new BigDecimal(text) : null;
    else number = exact(text, whole);
    if (number == null) return null;
    if (kind == FLOAT) return ascii(number.toPlainString());
    if (kind == BOOL && number.compareTo(BigDecimal.ONE) > 0) return null;
    if (kind == BOOL) return number.signum() < 0 ? null : ascii(number.signum() > 0 ? "true" : "false");
    if (kind == TEXT) return plain(number, whole && within(number.toBigInteger()));
    try {
      if (kind == INT) {
        BigInteger integer = number.toBigIntegerExact();
        return integer.compareTo(least) < 0 || integer.compareTo(most) > 0 ? null : ascii(integer.toString());
      }
      BigDecimal scaled = number.setScale(scale, RoundingMode.UNNECESSARY);
      return scaled.precision() > precision && scaled.signum() != 0 ? null : ascii('"' + scaled.toPlainString() + '"');
    } catch (ArithmeticException e) { // digits would be lost
      return null;
    }
  }

  /** A number as written; an integer beyond 64 bits is treated as a float with few significant digits. */
  private static BigDecimal exact(String text, boolean whole) {
    if (whole && text.length() < 25 && within(new BigInteger(text))) return new BigDecimal(text);
    double value = Double.parseDouble(text);
    if (value == 0) return BigDecimal.ZERO;
    BigDecimal written = new BigDecimal(text).stripTrailingZeros();
    if (written.precision() > DIGITS) written = new BigDecimal(Double.toString(value)).stripTrailingZeros();
    return written.precision() > DIGITS ? null : written;
  }

  private static boolean within(BigInteger number) {
    return number.compareTo(LOWEST) >= 0 && number.compareTo(HIGHEST) <= 0;
  }

  private static byte[] plain(BigDecimal number, boolean integer) {
    double size = Math.abs(number.doubleValue());
    if (!integer && size != 0 && (size < 1e-5 || size >= 1e15)) return null; // MySQL writes an exponent
    return ascii('"' + (number.signum() == 0 ? "0" : number.stripTrailingZeros().toPlainString()) + '"');
  }

  private byte[] dated(String text) {
    Matcher found = DATED.matcher(text);
    if (!found.matches()) return null;
    String day = found.group(1), time = found.group(2) == null ? "00:00:00" : found.group(2);
    String fraction = found.group(3) == null ? "" : found.group(3).replaceAll("0+$", "");
    if (kind == MOMENT) return ascii('"' + day + 'T' + time + (fraction.isEmpty() ? "" : "." + fraction) + "Z\"");
    return time.equals("00:00:00") && fraction.isEmpty() ? ascii('"' + day + "Z\"") : null;
  }

  private static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }

  /** The type as messages name it. */
  public String toString() {
    return name.equals("decimal") ? name + "(" + precision + "," + scale + ")" : name;
  }
}
