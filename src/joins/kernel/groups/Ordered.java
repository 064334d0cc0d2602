package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigInteger;
import java.util.Arrays;
import java.util.Base64;

/**
 * Encodes values of one type as bytes whose unsigned order is the order of the values, and decodes them to texts. No
 * value's bytes are a prefix of another's, so several values can be concatenated.
 */
final class Ordered {
  private static final int NUMBER = 0, DOUBLE = 1, BOOL = 2, TEXT = 3, BYTES = 4, MOMENT = 5, TIME = 6, LIST = 7;
  private static final int END = 0, ESCAPE = 1; // of a text; both are escaped in it and increased by one
  private static final int MIDDLE = 0x80; // plus or minus the length of a number
  private static final int MICROS = 8;
  private final int kind, turned; // mask that inverts all bits of a value in descending order
  private final boolean nullable;
  private final Numeric numeric;

  Ordered(JsonNode type, boolean nullable, boolean descending) {
    this.nullable = nullable;
    turned = descending ? 0xFF : 0;
    numeric = new Numeric(type);
    kind = numeric.there ? numeric.binary ? DOUBLE : NUMBER : kind(Message.at(type, Integer.valueOf(0)).asText());
  }

  private static int kind(String name) {
    if (name.equals("bool")) return BOOL;
    if (name.equals("time")) return TIME;
    if (name.equals("bytes")) return BYTES;
    if (name.equals("list")) return LIST; // lists have no meaningful order: they are compared as written
    boolean text = name.equals("string") || name.equals("json") || name.equals("point") || name.equals("geometry");
    return text ? TEXT : MOMENT;
  }

  /** Appends a value. */
  void write(byte[] text, int start, int end, Bytes out) {
    int from = out.length;
    boolean isNull = Texts.isNull(text, start, end);
    if (nullable) out.put(isNull ? 0 : 1);
    if (!isNull) value(text, start, end, out);
    for (int i = from; turned != 0 && i < out.length; i++) out.data[i] ^= turned;
  }

  private void value(byte[] text, int start, int end, Bytes out) {
    if (kind == NUMBER) number(text, start, end, out);
    else if (kind == DOUBLE) {
      long bits = Double.doubleToLongBits(Numeric.binary(text, start, end));
      out.putLong(bits < 0 ? ~bits : bits ^ Long.MIN_VALUE);
    } else if (kind == BOOL) out.put(text[start] == 't' ? 1 : 0);
    else if (kind == MOMENT) escaped(text, start + 1, end - 2, out); // "…00Z" precedes "…00.5Z"
    else if (kind == LIST) escaped(text, start, end, out);
    else if (kind == TIME) {
      byte[] time = Texts.unquoted(text, start, end);
      out.putLong(Times.micros(time) ^ Long.MIN_VALUE);
      escaped(time, 0, time.length, out);
    } else {
      byte[] inside = Texts.unquoted(text, start, end);
      if (kind == BYTES) inside = Base64.getDecoder().decode(inside);
      escaped(inside, 0, inside.length, out);
    }
  }

  private void number(byte[] text, int start, int end, Bytes out) {
    long small = numeric.small(text, start, end);
    byte[] size; // its magnitude
    boolean negative = small < 0;
    if (small != Numeric.BEYOND) {
      long left = Math.abs(small);
      int length = (71 - Long.numberOfLeadingZeros(left)) / 8;
      out.put(negative ? MIDDLE - length : MIDDLE + length);
      for (int i = length - 1; i >= 0; i--) out.put((int) (left >>> 8 * i) ^ (negative ? 0xFF : 0));
      return;
    }
    BigInteger exact = numeric.exact(text, start, end);
    negative = exact.signum() < 0;
    size = exact.abs().toByteArray();
    int zeros = size[0] == 0 ? 1 : 0, length = size.length - zeros;
    out.put(negative ? MIDDLE - length : MIDDLE + length);
    for (int i = zeros; i < size.length; i++) out.put(size[i] ^ (negative ? 0xFF : 0));
  }

  private static void escaped(byte[] bytes, int start, int end, Bytes out) {
    for (int i = start; i < end; i++) {
      if (bytes[i] == END || bytes[i] == ESCAPE) out.put(ESCAPE).put(bytes[i] + 1);
      else out.put(bytes[i]);
    }
    out.put(END);
  }

  /** The offset after the value that begins at `from`. */
  int end(byte[] key, int from) {
    int at = from;
    if (nullable && (key[at++] ^ (byte) turned) == 0) return at;
    if (kind == DOUBLE) return at + MICROS;
    if (kind == BOOL) return at + 1;
    if (kind == NUMBER) return at + 1 + Math.abs(((key[at] ^ turned) & 0xFF) - MIDDLE);
    if (kind == TIME) at += MICROS;
    for (; (key[at] ^ (byte) turned) != END; at++) if ((key[at] ^ (byte) turned) == ESCAPE) at++;
    return at + 1;
  }

  /** The canonical text of the value between two offsets. */
  byte[] text(byte[] key, int from, int end) {
    byte[] own = Arrays.copyOfRange(key, from, end);
    for (int i = 0; turned != 0 && i < own.length; i++) own[i] ^= turned;
    if (nullable && own[0] == 0) return Envelope.NULL;
    int at = nullable ? 1 : 0;
    if (kind == NUMBER) {
      int length = Math.abs((own[at] & 0xFF) - MIDDLE);
      return length < 8 ? numeric.text(small(own, at, length)) : numeric.text(number(own, at));
    }
    if (kind == DOUBLE) return Doubles.text(Double.longBitsToDouble(bits(own, at)));
    if (kind == BOOL) return own[at] == 0 ? Texts.ascii("false") : Texts.ascii("true");
    byte[] inside = inside(own, kind == TIME ? at + MICROS : at);
    if (kind == LIST) return inside;
    if (kind == MOMENT) return new Bytes(inside.length + 3).put('"').put(inside).put('Z').put('"').array();
    return Texts.quoted(kind == BYTES ? Base64.getEncoder().encode(inside) : inside);
  }

  private static long small(byte[] own, int at, int length) {
    boolean negative = (own[at] & 0xFF) < MIDDLE;
    long value = 0;
    for (int i = at + 1; i <= at + length; i++) value = value << 8 | (own[i] ^ (negative ? 0xFF : 0)) & 0xFF;
    return negative ? -value : value;
  }

  private static BigInteger number(byte[] own, int at) {
    int length = (own[at] & 0xFF) - MIDDLE;
    byte[] size = Arrays.copyOfRange(own, at + 1, at + 1 + Math.abs(length));
    for (int i = 0; length < 0 && i < size.length; i++) size[i] ^= 0xFF;
    return new BigInteger(Integer.signum(length), size);
  }

  private static long bits(byte[] own, int at) {
    long ordered = 0;
    for (int i = at; i < at + 8; i++) ordered = ordered << 8 | own[i] & 0xFF;
    return ordered < 0 ? ordered ^ Long.MIN_VALUE : ~ordered;
  }

  private static byte[] inside(byte[] own, int from) {
    Bytes inside = new Bytes(own.length);
    for (int i = from; own[i] != END; i++) {
      int shift = own[i] == ESCAPE ? 1 : 0;
      i += shift;
      inside.put(own[i] - shift);
    }
    return inside.array();
  }
}
