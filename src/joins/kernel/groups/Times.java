package tailorbird.kernel;

import java.nio.charset.StandardCharsets;
import java.time.*;

/** Reads a canonical TIME, `-12:30:00.25`, as a duration, and canonical dates and datetimes. */
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

  /**
   * A canonical date or datetime, in quotes, as microseconds since 1970; null if it is none: NULL, or a day that does
   * not exist.
   */
  static Long moment(byte[] text) {
    if (Envelope.isNull(text) || text.length < 12) return null;
    String moment = new String(text, 1, text.length - 2, StandardCharsets.ISO_8859_1);
    try {
      LocalDate day = LocalDate.parse(moment.substring(0, 10));
      if (day.getYear() < 1) return null;
      if (moment.length() < 19) return Long.valueOf(day.toEpochDay() * 86400 * SECOND);
      LocalDateTime whole = LocalDateTime.parse(moment.substring(0, 19));
      long micros = whole.toEpochSecond(ZoneOffset.UTC) * SECOND, unit = SECOND / 10;
      int end = Math.min(26, moment.length() - 1); // further digits are dropped
      for (int i = 20; i < end; i++, unit /= 10) micros += unit * (moment.charAt(i) - '0');
      return Long.valueOf(micros);
    } catch (DateTimeException e) {
      return null;
    }
  }
}
