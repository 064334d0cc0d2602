package tailorbird.kernel;

/** A canonical TIME, `-12:30:00.25`, as the duration that it is. */
final class Times {
  private static final long SECOND = 1000000;

  /** Its microseconds; of another text 0. */
  static long micros(byte[] time) {
    int at = time.length > 0 && time[0] == '-' ? 1 : 0, colons = 0;
    long whole = 0, part = 0, unit = SECOND;
    for (boolean fraction = false, negative = at == 1; ; at++) {
      if (at == time.length) return colons != 2 ? 0 : (negative ? -1 : 1) * (whole + part * SECOND);
      int digit = time[at] - '0';
      if (time[at] == ':' && !fraction) {
        colons++;
        whole = (whole + part) * 60;
        part = 0;
      } else if (time[at] == '.' && colons == 2 && !fraction) {
        fraction = true;
        whole = (whole + part) * SECOND;
        part = 0;
      } else if (digit < 0 || digit > 9) return 0;
      else if (fraction) whole += (unit /= 10) * digit;
      else part = part * 10 + digit;
    }
  }
}
