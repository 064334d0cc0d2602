package tailorbird.kernel;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.*;

/**
 * Checks that bytes are valid text, which Jackson does only for values it reads: UTF-8, paired surrogates, one
 * encoding.
 */
final class Unicode {
  static void check(byte[] text) throws IOException {
    int at = 0;
    while (at < text.length && (text[at] == ' ' || text[at] == '\n' || text[at] == '\t' || text[at] == '\r')) at++;
    if (at == text.length || text[at] != '{') throw new IOException("no JSON object");
    boolean plain = true, escaped = false;
    for (int i = at; i < text.length; i++) {
      plain &= text[i] > 0;
      escaped |= text[i] == '\\';
    }
    if (!plain) decode(text);
    if (escaped) pairs(text);
  }

  private static void decode(byte[] text) throws IOException {
    for (int i = 0; i < text.length; i++) if (text[i] == 0) throw new IOException("a zero byte in it");
    try {
      StandardCharsets.UTF_8.newDecoder().decode(ByteBuffer.wrap(text));
    } catch (CharacterCodingException e) {
      throw new IOException("not UTF-8");
    }
  }

  /** Escapes of surrogates: a low one must follow each high one, and occur nowhere else. */
  private static void pairs(byte[] text) throws IOException {
    boolean high = false;
    for (int i = 0; i < text.length; i++) {
      boolean escape = text[i] == '\\';
      int half = escape && i + 3 < text.length && text[i + 1] == 'u' ? half(text[i + 2], text[i + 3]) : 0;
      if (half == 2 != high) throw new IOException("half of a surrogate pair");
      high = half == 1;
      if (escape) i += half == 0 ? 1 : 5;
    }
    if (high) throw new IOException("half of a surrogate pair");
  }

  /** 1 for the first half of a pair, 2 for the second, by the first two hexadecimal digits. */
  private static int half(byte first, byte second) {
    if (first != 'd' && first != 'D') return 0;
    int digit = Character.digit((char) second, 16);
    return digit < 8 ? 0 : digit < 12 ? 1 : 2;
  }
}
