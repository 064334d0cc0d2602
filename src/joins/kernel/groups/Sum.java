package tailorbird.kernel;

import java.math.BigInteger;
import java.nio.ByteBuffer;

/**
 * The number of an argument's values that are not NULL and, for numbers, their exact sum `n * 2^exponent`, n in units
 * of the last digit and a long while it fits. Only doubles have an exponent other than 0, and values that are not
 * finite. Those are counted, so the sum is finite again after their removal.
 */
final class Sum {
  private static final byte[] NOTHING = new byte[0];
  private final Numeric type;
  long count;
  private long small;
  private BigInteger big; // replaces `small` once that is too small
  private int exponent;
  private long notNumbers, infinite, negative; // how many values are NaN, Infinity, -Infinity
  private static final int COUNTED = 1 << 20; // replaces an exponent where such counts follow

  Sum(Numeric type) {
    this.type = type;
  }

  /** Adds a value (`sign` 1) or removes it (-1), unless it is NULL. */
  void add(byte[] text, int start, int end, int sign) {
    if (Texts.isNull(text, start, end)) return;
    count += sign;
    if (!type.there) return;
    if (type.binary) {
      double value = Numeric.binary(text, start, end);
      if (Double.isNaN(value)) notNumbers += sign;
      else if (value == Double.POSITIVE_INFINITY) infinite += sign;
      else if (value == Double.NEGATIVE_INFINITY) negative += sign;
      else add(sign * Doubles.mantissa(value), Doubles.exponent(value));
      return;
    }
    long value = type.small(text, start, end);
    if (value != Numeric.BEYOND) add(sign * value, 0);
    else {
      BigInteger exact = type.exact(text, start, end);
      add(sign > 0 ? exact : exact.negate(), 0);
    }
  }

  void add(Sum other) {
    count += other.count;
    notNumbers += other.notNumbers;
    infinite += other.infinite;
    negative += other.negative;
    if (other.big == null) add(other.small, other.exponent);
    else add(other.big, other.exponent);
  }

  /** Adds a sum `times` times, a positive number; its values are counted once. */
  void add(Sum other, BigInteger times) {
    count += other.count;
    notNumbers += other.notNumbers;
    infinite += other.infinite;
    negative += other.negative;
    add(other.number().multiply(times), other.exponent);
  }

  private void add(long more, int at) {
    long sum = small + more;
    boolean fits = big == null && at == exponent && ((small ^ sum) & (more ^ sum)) >= 0;
    if (fits) small = sum;
    else add(BigInteger.valueOf(more), at);
  }

  private void add(BigInteger more, int at) {
    if (more.signum() == 0) return;
    BigInteger own = number(), other = more;
    if (own.signum() == 0) exponent = at;
    else if (at < exponent) {
      own = own.shiftLeft(exponent - at);
      exponent = at;
    } else other = more.shiftLeft(at - exponent);
    set(own.add(other));
  }

  private void set(BigInteger sum) {
    big = sum.bitLength() > 63 ? sum : null;
    small = big == null ? sum.longValue() : 0;
    if (big == null && small == 0) exponent = 0;
  }

  /** Whether some value is not finite, so that the sum is `limit` and not `number`. */
  boolean isLimit() {
    return notNumbers != 0 || infinite != 0 || negative != 0;
  }

  double limit() {
    if (notNumbers != 0 || infinite != 0 && negative != 0) return Double.NaN;
    return infinite != 0 ? Double.POSITIVE_INFINITY : Double.NEGATIVE_INFINITY;
  }

  /** Whether `small` is the sum, in units of the last digit. */
  boolean isSmall() {
    return big == null && exponent == 0 && !isLimit();
  }

  long small() {
    return small;
  }

  int scale() {
    return type.scale;
  }

  BigInteger number() {
    return big == null ? BigInteger.valueOf(small) : big;
  }

  /** The unit of its number. */
  BigInteger unit() {
    return BigInteger.TEN.pow(type.scale);
  }

  int exponent() {
    return exponent;
  }

  /** Appends the sum in its unique form. */
  void write(Bytes out) {
    out.putSigned(count);
    if (!type.there) return;
    int zeros = type.binary && !number().equals(BigInteger.ZERO) ? number().getLowestSetBit() : 0;
    if (zeros > 0) {
      exponent += zeros;
      set(number().shiftRight(zeros));
    }
    if (isLimit()) out.putSigned(COUNTED).putSigned(notNumbers).putSigned(infinite).putSigned(negative);
    if (type.binary) out.putSigned(exponent);
    out.putBlock(big == null && small == 0 ? NOTHING : number().toByteArray());
  }

  /** Adds a sum that was written. */
  void read(ByteBuffer from) {
    count += Bytes.signed(from);
    if (!type.there) return;
    int at = type.binary ? (int) Bytes.signed(from) : 0;
    if (at == COUNTED) {
      notNumbers += Bytes.signed(from);
      infinite += Bytes.signed(from);
      negative += Bytes.signed(from);
      at = (int) Bytes.signed(from);
    }
    byte[] number = Bytes.block(from);
    if (number.length > 8) add(new BigInteger(number), at);
    else if (number.length > 0) add(longOf(number), at);
  }

  private static long longOf(byte[] number) {
    long value = number[0];
    for (int i = 1; i < number.length; i++) value = value << 8 | number[i] & 0xFF;
    return value;
  }
}
