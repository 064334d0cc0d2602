package tailorbird.kernel;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.*;

/**
 * Results that read all tuples of a bag: `joins.steps.results`. Exact sums of a bag's numbers and of their squares,
 * percentiles, joined texts.
 */
final class Statistics {
  private BigInteger sum = BigInteger.ZERO, squares = BigInteger.ZERO; // in units of 2^exponent, and its square
  private int exponent;
  private long rows;
  private boolean infinite; // some value is not finite
  private final BigInteger unit;

  Statistics(Bag bag) {
    unit = bag.tally.zero().unit();
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      Sum number = bag.tally.zero();
      add(number, bag.tally.last((byte[]) tuple[0]));
      long times = ((Long) tuple[1]).longValue();
      rows += times;
      if (number.isLimit()) infinite = true;
      else add(number.number(), number.exponent(), BigInteger.valueOf(times));
    }
  }

  private void add(BigInteger number, int at, BigInteger times) {
    if (at < exponent) {
      sum = sum.shiftLeft(exponent - at);
      squares = squares.shiftLeft(2 * (exponent - at));
      exponent = at;
    }
    BigInteger scaled = number.shiftLeft(at - exponent);
    sum = sum.add(scaled.multiply(times));
    squares = squares.add(scaled.multiply(scaled).multiply(times));
  }

  private static void add(Sum sum, byte[] text) {
    sum.add(text, 0, text.length, 1);
  }

  /** The sum of squared distances from the mean, divided by the number of rows minus `less`. */
  byte[] variance(int less) {
    if (rows <= less) return Envelope.NULL;
    return Double.isInfinite(quotient(less)) ? Result.REFUSED : Doubles.text(quotient(less));
  }

  /** The square root of the rounded variance. */
  byte[] deviation(int less) {
    if (rows <= less) return Envelope.NULL;
    double found = quotient(less);
    return Double.isInfinite(found) ? Result.REFUSED : Doubles.text(Math.sqrt(found));
  }

  private double quotient(int less) {
    if (infinite) return Double.NaN;
    BigInteger all = BigInteger.valueOf(rows);
    BigInteger below = all.multiply(BigInteger.valueOf(rows - less)).multiply(unit).multiply(unit);
    return Doubles.quotient(all.multiply(squares).subtract(sum.multiply(sum)), 2 * exponent, below);
  }

  /** The first tuple with the highest count; null if there is none. */
  static byte[] mostFrequent(Bag bag) {
    byte[] found = null;
    long most = 0;
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      long times = ((Long) tuple[1]).longValue();
      if (times > most) found = (byte[]) tuple[0];
      most = Math.max(most, times);
    }
    return found;
  }

  /** The sum of the two middle values, which are the same one if the number of rows is odd. */
  static Sum middle(Bag bag) {
    long rows = 0, before = 0;
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      rows += ((Long) ((Object[]) tuples.next())[1]).longValue();
    }
    Sum found = bag.tally.zero();
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext() && before <= rows / 2; ) {
      Object[] tuple = (Object[]) tuples.next();
      long after = before + ((Long) tuple[1]).longValue();
      byte[] text = bag.tally.last((byte[]) tuple[0]);
      if (before <= (rows - 1) / 2 && (rows - 1) / 2 < after) add(found, text);
      if (before <= rows / 2 && rows / 2 < after) add(found, text);
      before = after;
    }
    return found;
  }

  /** The whole number by which a share is multiplied to have no decimal places. */
  static long unit(String share) {
    return BigInteger.TEN.pow(new BigDecimal(share).scale()).longValue();
  }

  /** The value at a share of the way from the least to the greatest, times `unit`. */
  static Sum percentile(Bag bag, String share) {
    BigInteger unit = BigInteger.valueOf(unit(share));
    BigInteger[] at = BigInteger.valueOf(Math.max(0, rows(bag) - 1))
        .multiply(new BigDecimal(share).unscaledValue()).divideAndRemainder(unit);
    long place = at[0].longValue(), before = 0;
    Sum found = bag.tally.zero();
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext() && before <= place + 1; ) {
      Object[] tuple = (Object[]) tuples.next();
      long after = before + ((Long) tuple[1]).longValue();
      BigInteger weight = BigInteger.ZERO;
      if (before <= place && place < after) weight = weight.add(unit.subtract(at[1]));
      if (before <= place + 1 && place + 1 < after) weight = weight.add(at[1]);
      if (weight.signum() != 0) found.add(number(bag, (byte[]) tuple[0]), weight);
      before = after;
    }
    return found;
  }

  /** The first tuple up to which there is a share of the rows; null if there is none. */
  static byte[] at(Bag bag, String share) {
    BigDecimal wanted = new BigDecimal(share).multiply(BigDecimal.valueOf(rows(bag)));
    long before = 0;
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      before += ((Long) tuple[1]).longValue();
      if (BigDecimal.valueOf(before).compareTo(wanted) >= 0) return (byte[]) tuple[0];
    }
    return null;
  }

  /** The number of that tuple. */
  static Sum number(Bag bag, String share) {
    byte[] tuple = at(bag, share);
    return tuple == null ? bag.tally.zero() : number(bag, tuple);
  }

  /** The texts with a separator between them; NULL without texts, `Result.REFUSED` if it is longer than `most`. */
  static byte[] joined(Bag bag, String separator, boolean once, int most) {
    byte[] between = Envelope.quoted(separator);
    Bytes out = new Bytes(64).put('"');
    boolean any = false;
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      Object[] tuple = (Object[]) tuples.next();
      byte[] text = bag.tally.last((byte[]) tuple[0]);
      long times = Envelope.isNull(text) ? 0 : once ? 1 : ((Long) tuple[1]).longValue();
      for (long i = 0; i < times; i++) {
        if (any) out.put(between, 1, between.length - 1);
        out.put(text, 1, text.length - 1);
        any = true;
        if (out.length >= most) return Result.REFUSED;
      }
    }
    return any ? out.put('"').array() : Envelope.NULL;
  }

  private static long rows(Bag bag) {
    long rows = 0;
    for (Iterator<Object> tuples = bag.tuples(); tuples.hasNext(); ) {
      rows += ((Long) ((Object[]) tuples.next())[1]).longValue();
    }
    return rows;
  }

  private static Sum number(Bag bag, byte[] tuple) {
    byte[] text = bag.tally.last(tuple);
    Sum number = bag.tally.zero();
    number.add(text, 0, text.length, 1);
    return number;
  }
}
