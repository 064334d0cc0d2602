package tailorbird.kernel;

import com.fasterxml.jackson.databind.JsonNode;
import java.math.BigInteger;

/** Converts a sum, or a sum divided by a count, to a result's type. */
final class Fraction {
  private final boolean binary, decimal, unsigned;
  private final Numeric type;
  private final int bits;
  private final BigInteger unit, most; // of decimals: 10^scale, and the first value that is too large
  private final long least, greatest; // limits of the values that fit and that a long holds

  Fraction(JsonNode type) {
    String kind = Message.at(type, Integer.valueOf(0)).asText();
    int precision = Message.at(type, Integer.valueOf(1)).asInt(), scale = Message.at(type, Integer.valueOf(2)).asInt();
    binary = kind.startsWith("float");
    decimal = kind.equals("decimal");
    unsigned = kind.equals("uint64");
    bits = kind.startsWith("int") ? Integer.parseInt(kind.substring(3)) - 1 : 64;
    unit = BigInteger.TEN.pow(scale);
    most = BigInteger.TEN.pow(precision);
    this.type = new Numeric(type);
    if (decimal) greatest = precision > 18 ? Long.MAX_VALUE : most.longValue() - 1;
    else greatest = bits > 62 ? Long.MAX_VALUE : (1L << bits) - 1;
    least = unsigned ? 0 : decimal ? -greatest : -greatest - 1;
  }

  /** The sum divided by `count`; `Result.REFUSED` where it does not fit. */
  byte[] of(Sum sum, long count) {
    boolean whole = count == 1 && !binary && sum.isSmall() && sum.scale() == type.scale;
    if (whole) { // the common case, without big numbers
      long found = sum.small();
      return found >= least && found <= greatest ? type.text(found) : Result.REFUSED;
    }
    BigInteger above = sum.number(), below = sum.unit().multiply(BigInteger.valueOf(count));
    int exponent = sum.exponent();
    if (binary) {
      if (sum.isLimit()) return Doubles.text(sum.limit());
      double found = Doubles.quotient(above, exponent, below);
      return Double.isInfinite(found) ? Result.REFUSED : Doubles.text(found);
    }
    if (exponent > 0) above = above.shiftLeft(exponent);
    else below = below.shiftLeft(-exponent);
    BigInteger found = decimal ? rounded(above.multiply(unit), below) : above.divide(below);
    boolean fits = decimal
        ? found.abs().compareTo(most) < 0
        : found.bitLength() <= bits && !(unsigned && found.signum() < 0);
    return fits ? type.text(found) : Result.REFUSED;
  }

  /** The nearest whole number, halves rounded away from 0. */
  private static BigInteger rounded(BigInteger above, BigInteger below) {
    BigInteger twice = above.abs().shiftLeft(1).add(below).divide(below.shiftLeft(1));
    return above.signum() < 0 ? twice.negate() : twice;
  }
}
