package tailorbird.kernel;

import java.math.BigInteger;
import java.util.*;

/** Results that read all tuples of a bag: `joins.steps.results`. Exact sums of a bag's numbers and of their squares. */
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
}
