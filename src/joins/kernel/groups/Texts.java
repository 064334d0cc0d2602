package tailorbird.kernel;

import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/** Finds values in the inside of a JSON array, `1,"x",null`, as in a payload, without parsing them. */
final class Texts {
  private static final ObjectMapper JSON = new ObjectMapper();

  /**
   * Where the first values of a text begin that itself begins at `from`: value i lies at `at[i]` up to `at[i + 1] - 1`.
   */
  static void find(byte[] text, int from, int[] at) {
    int place = from;
    at[0] = from;
    for (int i = 1; i < at.length; i++) at[i] = place = end(text, place) + 1;
  }

  /** The offset after the value that begins at `from`. */
  private static int end(byte[] text, int from) {
    int depth = 0;
    for (int i = from; i < text.length; i++) {
      byte c = text[i];
      if (c == '"') i = closing(text, i);
      else if (c == ',' && depth == 0) return i;
      else if (c == '[' || c == '{') depth++;
      else if (c == ']' || c == '}') depth--;
    }
    return text.length;
  }

  private static int closing(byte[] text, int quote) {
    int i = quote + 1;
    for (; text[i] != '"'; i++) if (text[i] == '\\') i++;
    return i;
  }

  /** Some values joined with commas, after `room` bytes. */
  static byte[] picked(byte[] text, int[] at, int[] picks, int room) {
    int length = room + Math.max(0, picks.length - 1);
    for (int i = 0; i < picks.length; i++) length += at[picks[i] + 1] - 1 - at[picks[i]];
    byte[] out = new byte[length];
    int place = room;
    for (int i = 0; i < picks.length; i++) {
      if (i > 0) out[place++] = ',';
      int start = at[picks[i]], size = at[picks[i] + 1] - 1 - start;
      System.arraycopy(text, start, out, place, size);
      place += size;
    }
    return out;
  }

  /** An array for `find`, large enough to locate the given values. */
  static int[] room(int[] picks) {
    int most = 0;
    for (int i = 0; i < picks.length; i++) most = Math.max(most, picks[i] + 1);
    return new int[most + 1];
  }

  static boolean isNull(byte[] text, int start, int end) {
    return end - start == 4 && text[start] == 'n'; // no other value begins with it
  }

  /** The characters between the quotes of a text value, as UTF-8. */
  static byte[] unquoted(byte[] text, int start, int end) {
    for (int i = start + 1; i < end - 1; i++) if (text[i] == '\\') return unescaped(text, start, end);
    byte[] inside = new byte[end - start - 2];
    System.arraycopy(text, start + 1, inside, 0, inside.length);
    return inside;
  }

  private static byte[] unescaped(byte[] text, int start, int end) {
    try {
      String read = (String) JSON.readValue(text, start, end - start, String.class);
      return read.getBytes(StandardCharsets.UTF_8);
    } catch (IOException e) {
      throw new IllegalStateException(e); // cannot happen: the kernel or Spark wrote it
    }
  }

  /** UTF-8 bytes as a text value. */
  static byte[] quoted(byte[] utf8) {
    for (int i = 0; i < utf8.length; i++) {
      boolean escapes = utf8[i] >= 0 && utf8[i] < ' ' || utf8[i] == '"' || utf8[i] == '\\';
      if (escapes) return Envelope.quoted(new String(utf8, StandardCharsets.UTF_8));
    }
    byte[] text = new byte[utf8.length + 2];
    text[0] = text[text.length - 1] = '"';
    System.arraycopy(utf8, 0, text, 1, utf8.length);
    return text;
  }

  static byte[] ascii(String text) {
    return text.getBytes(StandardCharsets.ISO_8859_1);
  }
}
