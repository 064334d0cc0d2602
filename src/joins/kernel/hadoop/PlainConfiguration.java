package tailorbird.kernel;

import java.lang.reflect.Field;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;

/**
 * Hadoop's settings without the names of the files that they come from. Spark serializes all settings for each stateful
 * step of each batch, and Hadoop compresses these names one by one, with a new compressor for each of 1,500 settings.
 */
public final class PlainConfiguration {
  /** Forgets the files of all settings. Copies of the configuration have none either. */
  public static void forgetSources(Configuration configuration) throws ReflectiveOperationException {
    configuration.size(); // reads the files
    Field sources = Configuration.class.getDeclaredField("updatingResource");
    sources.setAccessible(true);
    ((Map) sources.get(configuration)).clear();
  }
}
