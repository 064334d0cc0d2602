package tailorbird.kernel;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.math.MathContext;
import java.math.RoundingMode;

/** Exact doubles: their mantissa and exponent, the nearest double to a fraction, and their shortest text. */
final class Doubles {
  private static final int BITS = 66; // of a quotient: more than a double has, and one sticky bit
  private static final int SHORTEST = 15, LONGEST = 17; // digits that distinguish doubles
  private static final int PLAIN = 16; // digits of whole numbers that are written without exponent

  /** The mantissa: together with `exponent`, `mantissa * 2^exponent` is the double. */
  static long mantissa(double value) {
    long bits = Double.doubleToLongBits(value), low = bits & (1L << 52) - 1;
    long mantissa = (bits >>> 52 & 0x7FF) == 0 ? low : low | 1L << 52;
    return bits < 0 ? -mantissa : mantissa;
  }

  static int exponent(double value) {
    int stored = (int) (Double.doubleToLongBits(value) >>> 52) & 0x7FF;
    return Math.max(stored, 1) - 1075;
  }

  /** The double nearest to `above * 2^exponent / below`; infinite where there is none. */
  static double quotient(BigInteger above, int exponent, BigInteger below) {
    if (above.signum() == 0) return 0;
    int shift = BITS + below.bitLength() - above.bitLength();
    BigInteger scaled = shift > 0 ? above.abs().shiftLeft(shift) : above.abs();
    BigInteger[] found = scaled.divideAndRemainder(shift > 0 ? below : below.shiftLeft(-shift));
    BigInteger whole = found[1].signum() == 0 ? found[0] : found[0].setBit(0);
    double near = Math.scalb(whole.doubleValue(), exponent - shift);
    if (near < Double.MIN_NORMAL) near = power(whole, exponent - shift).doubleValue(); // otherwise rounded twice
    return above.signum() * near;
  }

  private static BigDecimal power(BigInteger value, int exponent) {
    if (exponent >= 0) return new BigDecimal(value.shiftLeft(exponent));
    return new BigDecimal(value.multiply(BigInteger.valueOf(5).pow(-exponent)), -exponent);
  }

  /**
   * The shortest of 15, 16 and 17 digits that parses to the same double; a string for values that JSON cannot express.
   */
  static byte[] text(double value) {
    if (Double.isNaN(value) || Double.isInfinite(value)) return Texts.ascii('"' + Double.toString(value) + '"');
    if (value == 0) return new byte[] {'0'};
    BigDecimal exact = new BigDecimal(value), rounded = exact;
    for (int digits = SHORTEST; digits <= LONGEST; digits++) {
      rounded = exact.round(new MathContext(digits, RoundingMode.HALF_EVEN));
      if (rounded.doubleValue() == value) break;
    }
    BigDecimal plain = rounded.stripTrailingZeros();
    boolean whole = plain.scale() < 0 && plain.precision() - plain.scale() <= PLAIN;
    return Texts.ascii((whole ? plain.setScale(0) : plain).toString());
  }
}
