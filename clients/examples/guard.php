<?php
// A guard in front of a database: a Bloom filter of all keys, asked before the database is.
// A lookup never fails because of the filter, and never hides a row that exists.
// An example: docs/guide/guard.md says what it does not do.

declare(strict_types=1);

final class Guard
{
    private const FILTER = 'guard:{users}', NEW = 'guard:{users}:new'; // {users}: RENAME needs both names in one slot
    private const COMPLETE = 'guard: complete'; // the item that a build adds last: without it a filter is not believed
    private const ERROR_RATE = 0.001, CAPACITY = 120_000, BATCH = 1000;
    private const PAUSE = 1.0; // seconds after a failure in which only the database is asked
    private const LONGEST_INSERT = 5.0; // seconds that insert() can take at most: build() waits that long
    private const LONGEST_TRANSACTION = 2.0; // the part of LONGEST_INSERT for the database's insert(), connecting and commit included

    // Completes a filter and puts it in the place of the old one, in one step. Only a filter that has the items of this
    // build is completed: another build may have begun a new filter under the same name.
    private const FINISH = <<<'LUA'
        local own = redis.call('BF.MEXISTS', KEYS[1], unpack(ARGV, 2))
        for _, found in ipairs(own) do
          if found == 0 then
            return redis.error_reply('ERR the new filter is lost, or another build has begun')
          end
        end
        redis.call('BF.ADD', KEYS[1], ARGV[1])
        return redis.call('RENAME', KEYS[1], KEYS[2])
        LUA;

    public int $failures = 0; // how often the filter gave no answer: a metric to watch
    private float $resumeAt = 0.0;
    private ?Redis $reader = null; // for lookups
    private ?Redis $writer = null; // for inserts, which wait longer

    /** `$connect(0.1)` returns a connection, as connect() does. The database has get($key), insert($key, $value) and keys(). */
    public function __construct(private Closure $connect, private object $database)
    {
    }

    /** A connection that waits `$timeout` seconds at most, to connect and for a reply, and never connects again by itself. */
    public static function connect(string $host, int $port, float $timeout): Redis
    {
        $redis = new Redis();
        $redis->connect($host, $port, $timeout, null, 0, $timeout);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        return $redis;
    }

    /** The row of the key, or null. Asks the database unless the filter says that there is no such row. */
    public function lookup(string $key): ?string
    {
        return $this->isAbsent($key) ? null : $this->database->get($key);
    }

    /** Whether the row certainly does not exist; false also if the filter cannot tell. */
    private function isAbsent(string $key): bool
    {
        if (self::now() < $this->resumeAt) {
            return false;
        }
        try {
            $this->reader ??= ($this->connect)(0.1);
            [$found, $complete] = self::send($this->reader, 'BF.MEXISTS', self::FILTER, $key, self::COMPLETE);
            if ($complete) {
                return !$found;
            }
            $problem = 'there is no complete filter';
        } catch (Throwable $error) { // whatever it is, the database is asked
            $problem = $error->getMessage();
        }
        $this->reader = null; // a late reply must not be taken for the next one
        $this->failures++;
        $this->resumeAt = self::now() + self::PAUSE;
        error_log("the filter gave no answer: $problem");
        return false;
    }

    /** Adds the key to the filters, then the row to the database. If it throws, the row may be missing: try again. */
    public function insert(string $key, string $value): void
    {
        $begin = self::now(); // before the first filter is asked, because build() waits from there on
        $redis = $this->writer ?? ($this->connect)(1.0);
        $this->writer = null; // after a failure this connection is not used again
        foreach ([self::NEW, self::FILTER] as $name) { // in this order, because build() renames the first to the second
            try {
                self::add($redis, $name, [$key]);
            } catch (RedisException $error) {
                if ($error->getMessage() !== 'ERR not found') { // a filter that does not exist needs no key
                    throw $error;
                }
            }
        }
        $this->writer = $redis;
        if (self::now() - $begin > self::LONGEST_INSERT - self::LONGEST_TRANSACTION) {
            throw new RuntimeException('the filters took so long that a build may miss the row');
        }
        $this->database->insert($key, $value);
    }

    /** Fills a new filter with all keys and puts it in the place of the old one. If it throws, the old one stays. */
    public static function build(Redis $redis, object $database, float $wait = self::LONGEST_INSERT): void
    {
        // All on one connection, which breaks if the server restarts in the meantime, perhaps from an older snapshot.
        self::send($redis, 'UNLINK', self::NEW);
        self::send($redis, 'BF.RESERVE', self::NEW, self::ERROR_RATE, self::CAPACITY);
        // Three items: all three are hardly ever found by chance.
        $thisBuild = array_map(fn () => 'guard: build ' . bin2hex(random_bytes(16)), range(1, 3));
        self::add($redis, self::NEW, $thisBuild);
        $end = self::now() + $wait; // from then on, each row is in `keys` or its insert() has found NEW
        while (self::now() < $end) { // a signal ends usleep() early
            usleep(10_000);
        }
        foreach (array_chunk($database->keys(), self::BATCH) as $batch) {
            self::add($redis, self::NEW, $batch);
        }
        self::send($redis, 'EVAL', self::FINISH, 2, self::NEW, self::FILTER, self::COMPLETE, ...$thisBuild);
    }

    /** Adds items to a filter that exists: NOCREATE, since one with these items only would hide all others. */
    private static function add(Redis $redis, string $name, array $items): void
    {
        self::send($redis, 'BF.INSERT', $name, 'NOCREATE', 'ITEMS', ...$items);
    }

    /** The reply to a command. Throws all errors: phpredis throws some, and returns false for others and those in arrays. */
    private static function send(Redis $redis, string|int|float ...$words): mixed
    {
        $redis->clearLastError();
        $reply = $redis->rawCommand(...$words);
        return $redis->getLastError() === null ? $reply : throw new RedisException($redis->getLastError());
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9; // goes on steadily when the clock is set
    }
}
