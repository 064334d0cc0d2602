package tailorbird.kernel;

/** Reads a canonical TIME, `-12:30:00.25`, as a duration. */
final class Times {
  private static final long SECOND = 1000000;

  /** The microseconds; 0 for any other text. */
  static long micros(byte[] time) {
    int start = time.length > 0 && time[0] == '-' ? 1 : 0, colons = 0;
    long whole = 0, part = 0; // sixtieths so far, and the number being read
    for (int i = start; i < time.length; i++) {
      int digit = time[i] - '0';
      if (time[i] == '.' && colons == 2) return sign(start) * ((whole + part) * SECOND + fraction(time, i + 1));
      if (time[i] == ':') {
        colons++;
        whole = (whole + part) * 60;
        part = 0;
      } else if (digit < 0 || digit > 9) return 0;
      else part = part * 10 + digit;
    }
    return colons == 2 ? sign(start) * (whole + part) * SECOND : 0;
  }

  private static long sign(int start) {
    return start == 1 ? -1 : 1;
  }

  private static long fraction(byte[] time, int from) {
    long micros = 0, unit = SECOND / 10;
    for (int i = from; i < time.length; i++, unit /= 10) micros += unit * (time[i] - '0');
    return micros;
  }
}
