package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.RoundingMode;
import java.nio.charset.StandardCharsets;

/** Reads numbers of one type from texts: integers and decimals as unscaled numbers, others as doubles. */
final class Numeric {
  private static final int SAFE = 18; // a long holds this many digits
  static final long BEYOND = Long.MIN_VALUE; // more digits than `SAFE`
  final boolean there, binary; // whether the type is numeric, and whether it is a double
  final int scale;
  private final boolean decimal;

  Numeric(JsonNode type) {
    String kind = Message.at(type, Integer.valueOf(0)).asText();
    decimal = kind.equals("decimal");
    binary = kind.startsWith("float");
    there = decimal || binary || kind.startsWith("int") || kind.equals("uint64");
    scale = decimal ? Message.at(type, Integer.valueOf(2)).asInt() : 0;
  }

  /** A value as an unscaled number; BEYOND if only `exact` can read it. */
  long small(byte[] text, int start, int end) {
    int at = decimal ? start + 1 : start, last = decimal ? end - 1 : end;
    boolean negative = text[at] == '-';
    if (negative) at++;
    if (last - at > SAFE) return BEYOND;
    int point = scale == 0 ? last : last - scale - 1;
    if (point < at) return BEYOND;
    long value = 0;
    for (int i = at; i < last; i++) {
      int digit = text[i] - '0';
      if (i == point) {
        if (text[i] != '.') return BEYOND;
      } else if (digit < 0 || digit > 9) return BEYOND;
      else value = 10 * value + digit;
    }
    return negative ? -value : value;
  }

  /** A value as an unscaled number of any size and notation. */
  BigInteger exact(byte[] text, int start, int end) {
    int quote = decimal ? 1 : 0;
    String number = new String(text, start + quote, end - start - 2 * quote, StandardCharsets.ISO_8859_1);
    return new BigDecimal(number).setScale(scale, RoundingMode.UNNECESSARY).unscaledValue();
  }

  static double binary(byte[] text, int start, int end) {
    if (text[start] == '"') return binary(text, start + 1, end - 1); // NaN, Infinity, -Infinity
    return Double.parseDouble(new String(text, start, end - start, StandardCharsets.ISO_8859_1)) + 0.0; // no -0
  }

  /** The canonical text of an unscaled number that a long holds. */
  byte[] text(long unscaled) {
    if (!decimal) return Texts.ascii(Long.toString(unscaled));
    return Texts.ascii('"' + BigDecimal.valueOf(unscaled, scale).toPlainString() + '"');
  }

  /** The canonical text of an unscaled number. */
  byte[] text(BigInteger unscaled) {
    if (!decimal) return Texts.ascii(unscaled.toString());
    return Texts.ascii('"' + new BigDecimal(unscaled, scale).toPlainString() + '"');
  }
}
