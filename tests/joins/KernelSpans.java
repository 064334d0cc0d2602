package tailorbird.kernel;

import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/** Prints the spans of time of rows on stdin: each a line of JSON with `bounds` and the text of its `values`. */
public class KernelSpans {
  public static void main(String[] arguments) throws IOException {
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      byte[] text = Message.at(Message.parsed(line), "values").asText().getBytes(StandardCharsets.UTF_8);
      byte[] payload = ByteBuffer.allocate(Message.TIME + text.length).putLong(1).put(text).array();
      long[] span = new Span(Message.at(Message.parsed(line), "bounds")).of(payload);
      System.out.println(span[0] + " " + span[1]);
    }
  }
}
