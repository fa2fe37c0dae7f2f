import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.spark.sql.SparkSession;

/** A program that starts Spark, creates the file of its argument and never ends. */
public final class Endless {
  private Endless() {}

  public static void main(String[] ready) throws Exception {
    SparkSession.builder().getOrCreate();
    Files.createFile(Paths.get(ready[0]));
    Thread.sleep(Long.MAX_VALUE);
  }
}
