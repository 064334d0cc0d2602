package tailorbird.kernel;

import java.nio.ByteBuffer;
import java.util.Arrays;

/** A buffer of concatenated values and the methods that read them again; lengths and counts are written compactly. */
final class Bytes {
  byte[] data;
  int length;

  Bytes(int room) {
    data = new byte[room];
  }

  Bytes put(int one) {
    if (length == data.length) grow(1);
    data[length++] = (byte) one;
    return this;
  }

  Bytes put(byte[] from) {
    return put(from, 0, from.length);
  }

  Bytes put(byte[] from, int start, int end) {
    if (end - start > data.length - length) grow(end - start);
    System.arraycopy(from, start, data, length, end - start);
    length += end - start;
    return this;
  }

  Bytes putLong(long value) {
    for (int shift = 56; shift >= 0; shift -= 8) put((int) (value >>> shift));
    return this;
  }

  /** Appends a number with seven bits per byte, the lowest first. */
  Bytes putCount(long value) {
    long left = value;
    for (; (left & ~0x7FL) != 0; left >>>= 7) put((int) left & 0x7F | 0x80);
    return put((int) left);
  }

  /** Appends a number that may be negative. */
  Bytes putSigned(long value) {
    return putCount(value << 1 ^ value >> 63);
  }

  /** Appends bytes, preceded by their length. */
  Bytes putBlock(byte[] block) {
    return putCount(block.length).put(block);
  }

  byte[] array() {
    return Arrays.copyOf(data, length);
  }

  private void grow(int more) {
    data = Arrays.copyOf(data, Math.max(2 * data.length, length + more));
  }

  static long count(ByteBuffer from) {
    long value = 0;
    for (int shift = 0; ; shift += 7) {
      byte next = from.get();
      value |= (next & 0x7FL) << shift;
      if (next >= 0) return value;
    }
  }

  static long signed(ByteBuffer from) {
    long value = count(from);
    return value >>> 1 ^ -(value & 1);
  }

  static byte[] block(ByteBuffer from) {
    byte[] block = new byte[(int) count(from)];
    from.get(block);
    return block;
  }
}
