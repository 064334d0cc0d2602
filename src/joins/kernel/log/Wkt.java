package tailorbird.kernel;

import com.fasterxml.jackson.core.*;
import java.io.IOException;
import java.math.*;
import java.nio.*;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.regex.*;

/** Converts Debezium's geometry struct to its text (EWKT): `cdc.model.geometry` writes the same. */
final class Wkt {
  private static final String[] NAMES = {
    "", "POINT", "LINESTRING", "POLYGON", "MULTIPOINT", "MULTILINESTRING", "MULTIPOLYGON", "GEOMETRYCOLLECTION"
  };
  private static final String NUMBER = "(-?[0-9]+(?:\\.[0-9]+)?(?:e[-+][0-9]+)?)";
  private static final Pattern PAIR = Pattern.compile("\\(" + NUMBER + "," + NUMBER + "\\)");
  private static final int POINT = 1, LINE = 2, POLYGON = 3, COLLECTION = 7;
  private static final int HAS_SRID = 0x20000000; // EWKB's flag
  private static final int DEEPEST = 32;
  private static final BigDecimal LEAST = new BigDecimal("1e-15"), MOST = new BigDecimal("1e15");
  private final StringBuilder out = new StringBuilder();
  private final ByteBuffer wkb;
  private long own; // the SRID that the WKB itself contains

  private Wkt(byte[] wkb) {
    this.wkb = ByteBuffer.wrap(wkb);
  }

  /**
   * The text, as JSON, of the object that the parser has entered; null if it is no geometry. The parser moves past it.
   */
  static byte[] of(JsonParser json) throws IOException {
    String wkb = null;
    long srid = 0;
    boolean right = true;
    while (json.nextToken() == JsonToken.FIELD_NAME) {
      String name = json.currentName();
      JsonToken token = json.nextToken();
      if (name.equals("wkb")) wkb = token == JsonToken.VALUE_STRING ? json.getText() : null;
      if (name.equals("srid")) {
        boolean number = token == JsonToken.VALUE_NUMBER_INT && json.getTextLength() <= 10;
        srid = number ? json.getLongValue() : 0;
        right = (number || token == JsonToken.VALUE_NULL) && srid >= 0 && srid < 1L << 32;
      }
      Envelope.skip(json, token);
    }
    if (wkb == null || wkb.length() % 4 != 0 || !right) return null;
    try {
      Wkt found = new Wkt(Base64.getDecoder().decode(wkb));
      found.geometry(0, true);
      if (found.wkb.hasRemaining()) return null;
      srid = srid == 0 ? found.own : srid;
      String text = '"' + (srid == 0 ? "" : "SRID=" + srid + ";") + found.out + '"';
      return text.getBytes(StandardCharsets.ISO_8859_1);
    } catch (RuntimeException e) { // bytes that are not a geometry
      return null;
    }
  }

  /** PostgreSQL's point in the form of older records, `(1.5,2)`; null for any other text. */
  static byte[] ofPair(String text) {
    Matcher pair = PAIR.matcher(text);
    if (!pair.matches()) return null;
    Wkt found = new Wkt(new byte[0]);
    found.out.append("\"POINT(");
    found.number(Double.parseDouble(pair.group(1)));
    found.out.append(' ');
    found.number(Double.parseDouble(pair.group(2)));
    return found.out.append(")\"").toString().getBytes(StandardCharsets.ISO_8859_1);
  }

  private void geometry(int depth, boolean named) {
    if (depth > DEEPEST) throw new IllegalArgumentException("nested too deep");
    wkb.order(wkb.get() == 1 ? ByteOrder.LITTLE_ENDIAN : ByteOrder.BIG_ENDIAN);
    ByteOrder order = wkb.order();
    int code = wkb.getInt();
    if ((code & HAS_SRID) != 0) {
      long srid = wkb.getInt() & 0xFFFFFFFFL;
      if (depth == 0) own = srid;
      code &= ~HAS_SRID;
    }
    if (code < POINT || code > COLLECTION) throw new IllegalArgumentException("wkb of type " + code);
    if (named) out.append(NAMES[code]);
    if (code == POINT) {
      out.append('(');
      pair();
      out.append(')');
      return;
    }
    if (code == LINE) {
      line(named);
      return;
    }
    int count = count(code == POLYGON ? 4 : 5);
    if (count == 0) out.append(named ? " EMPTY" : "EMPTY");
    for (int i = 0; i < count; i++) {
      out.append(i == 0 ? '(' : ',');
      wkb.order(order);
      if (code == POLYGON) line(false);
      else geometry(depth + 1, code == COLLECTION);
    }
    if (count > 0) out.append(')');
  }

  private void line(boolean named) {
    int count = count(16);
    if (count == 0) out.append(named ? " EMPTY" : "EMPTY");
    for (int i = 0; i < count; i++) {
      out.append(i == 0 ? '(' : ',');
      pair();
    }
    if (count > 0) out.append(')');
  }

  /** The number of parts that follow, each of at least `least` bytes. */
  private int count(int least) {
    int count = wkb.getInt();
    if (count < 0 || (long) count * least > wkb.remaining()) throw new BufferUnderflowException();
    return count;
  }

  private void pair() {
    number(wkb.getDouble());
    out.append(' ');
    number(wkb.getDouble());
  }

  /** A coordinate with the fewest digits that parse to the same number. */
  private void number(double value) {
    if (Double.isNaN(value) || Double.isInfinite(value)) {
      out.append(Double.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf");
      return;
    }
    if ((Double.doubleToRawLongBits(value) & Long.MIN_VALUE) != 0) out.append('-');
    value = Math.abs(value);
    if (value == 0) {
      out.append('0');
      return;
    }
    BigDecimal written = shortest(value);
    if (written.compareTo(LEAST) >= 0 && written.compareTo(MOST) < 0) {
      out.append(written.toPlainString());
      return;
    }
    String digits = written.unscaledValue().toString();
    out.append(digits.charAt(0));
    if (digits.length() > 1) out.append('.').append(digits, 1, digits.length());
    out.append('e').append(digits.length() - 1 - written.scale());
  }

  private static BigDecimal shortest(double value) {
    BigDecimal exact = new BigDecimal(value);
    for (int digits = value < 1e-300 ? 1 : 15; digits < 17; digits++) { // up to 15 digits are always distinct
      BigDecimal rounded = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
      if (rounded.doubleValue() == value) return rounded.stripTrailingZeros();
    }
    return exact.round(new MathContext(17, RoundingMode.HALF_EVEN)).stripTrailingZeros();
  }
}
