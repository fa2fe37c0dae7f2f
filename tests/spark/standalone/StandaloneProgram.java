import java.nio.file.Files;
import java.nio.file.Paths;
import org.apache.spark.sql.SparkSession;

/** Program that starts Spark and creates the file that its first argument names. The second selects the ending. */
public final class StandaloneProgram {
  private StandaloneProgram() {}

  public static void main(String[] arguments) throws Exception {
    SparkSession spark = SparkSession.builder().getOrCreate();
    Files.createFile(Paths.get(arguments[0]));
    switch (arguments[1]) {
      case "stop":
        spark.range(3).count();
        spark.stop();
        break;
      case "throw":
        throw new IllegalStateException("no price for order 7");
      default:
        Thread.sleep(Long.MAX_VALUE);
    }
  }
}
