<?php
// A guard and a crawler on a sharded filter, which docs/sharding.md specifies.

declare(strict_types=1);

/** Connections to the nodes of a cluster. It follows MOVED and ASK: the raw commands of phpredis's RedisCluster do not. */
final class Nodes
{
    private array $connections = []; // by address
    private array $owners = []; // by key: the address of its node

    /** The addresses of some nodes, such as 127.0.0.1:6379, and the seconds to wait to connect and for a reply. */
    public function __construct(private array $nodes, private float $timeout)
    {
    }

    /** The reply of the node that has the key. Throws all errors. */
    public function send(string $key, string|int ...$words): mixed
    {
        $node = $this->owners[$key] ?? $this->nodes[0];
        for ($asking = false, $tries = 0; $tries < 5; $tries++) {
            try {
                if ($asking) {
                    $this->sendTo($node, 'ASKING');
                }
                return $this->sendTo($node, ...$words);
            } catch (RedisException $error) {
                if (!preg_match('/^(MOVED|ASK) \d+ (\S+)$/', $error->getMessage(), $redirection)) {
                    throw $error;
                }
                [, $what, $node] = $redirection;
                $asking = $what === 'ASK';
                if (!$asking && str_starts_with($key, '{')) { // not of claims: there is no end of them
                    $this->owners[$key] = $node;
                }
            }
        }
        throw new RedisException('too many redirections');
    }

    /** phpredis throws some errors, and returns false for others and for those in arrays. */
    private function sendTo(string $node, string|int ...$words): mixed
    {
        try {
            $redis = $this->connections[$node] ??= $this->connect($node);
            $redis->clearLastError();
            $reply = $redis->rawCommand(...$words);
        } catch (RedisException $error) {
            // Unless the server refused: a late reply must not be taken for the next one.
            if (!preg_match('/^[A-Z]+ /', $error->getMessage())) {
                unset($this->connections[$node]);
                $this->owners = array_diff($this->owners, [$node]);
                $this->nodes = [...array_diff($this->nodes, [$node]), $node]; // ask another one first
            }
            throw $error;
        }
        return $redis->getLastError() === null ? $reply : throw new RedisException($redis->getLastError());
    }

    private function connect(string $node): Redis
    {
        $colon = strrpos($node, ':');
        $redis = new Redis();
        $redis->connect(substr($node, 0, $colon), (int) substr($node, $colon + 1), $this->timeout, null, 0, $this->timeout);
        $redis->setOption(Redis::OPT_MAX_RETRIES, 0);
        if (!in_array($node, $this->nodes, true)) {
            $this->nodes[] = $node;
        }
        return $redis;
    }
}

/** A sharded filter. */
final class Sharded
{
    public const COMPLETE = 'filter: complete'; // begins the items that are added last, without which a "no" is not believed
    private const PAUSE = 1.0; // seconds after a failure in which a shard, or the descriptor, is not asked for
    private const TOO_OLD = 'the descriptor is too old'; // an error of this program
    private const VECTORS = [['a', 8, 7], ['user:1', 1000, 482], ['münchen', 128, 34]];

    public int $failures = 0; // how often the filter gave no answer: a metric to watch
    private ?array $descriptor = null; // what parse() returns, and readAt
    private array $resumeAt = []; // by key: when it may be asked again

    /** The reader is `new Nodes($addresses, 0.1)`, the writer `new Nodes($addresses, 1.0)`. */
    public function __construct(private string $name, private Nodes $reader, private Nodes $writer)
    {
        foreach (self::VECTORS as [$item, $shards, $shard]) {
            self::shardOf($item, $shards) === $shard || throw new LogicException("shardOf('$item', $shards) is not $shard");
        }
    }

    public static function shardOf(string $item, int $shards): int
    {
        return (crc32($item) * $shards) >> 32; // on a machine of 64 bits
    }

    /** For each shard the item that marks it as complete: `filter: complete K` with the smallest K of that shard. */
    public static function markers(int $shards): array
    {
        for ($found = [], $number = 0; count($found) < $shards; $number++) {
            $item = self::COMPLETE . " $number";
            $found[self::shardOf($item, $shards)] ??= $item;
        }
        ksort($found);
        return $found;
    }

    /** By item: true, false, or null if there is no answer. Never throws. */
    public function ask(array $items): array
    {
        $items = array_unique($items);
        $answers = array_fill_keys($items, null);
        $stale = [];
        $this->askOnce($items, null, $answers, $stale);
        if ($stale) { // the filter was rebuilt
            $none = null;
            $this->askOnce($stale, 0.0, $answers, $none);
        }
        return $answers;
    }

    /** Adds items; returns the `poll` of the descriptor that says where. If it throws, some may be missing: try again. */
    public function add(array $items, int $replicas = 0): int
    {
        try {
            return $this->addOnce($items, $replicas, null);
        } catch (Exception $error) {
            return self::isStale($error) ? $this->addOnce($items, $replicas, 0.0) : throw $error;
        }
    }

    /** Puts answers into `$answers`, and into `$stale` the items to ask again, with a descriptor that is read again. */
    private function askOnce(array $items, ?float $age, array &$answers, ?array &$stale): void
    {
        if ($this->mayAsk($this->name)) {
            try {
                $this->read($this->reader, $age);
            } catch (Throwable $error) { // the one that was read last is used: its shards answer for themselves
                $this->fail($this->name, $error->getMessage());
            }
        }
        if (!$this->descriptor) {
            return;
        }
        ['current' => $current, 'base' => $base] = $this->descriptor;
        foreach (self::group($current['shards'], $items) as [$key, $mark, $group]) {
            $this->askFilter($key, $mark, $group, $answers, $stale);
        }
        $absent = array_filter($items, fn ($item) => $answers[$item] === false);
        if ($base !== null && $absent) {
            $this->askFilter($base, self::COMPLETE, array_values($absent), $answers, $stale);
        }
    }

    private function askFilter(string $key, string $mark, array $items, array &$answers, ?array &$stale): void
    {
        foreach ($items as $item) {
            $answers[$item] = null;
        }
        if (!$this->mayAsk($key)) {
            return;
        }
        try {
            $found = $this->reader->send($key, 'BF.MEXISTS', $key, ...[...$items, $mark]);
            $complete = array_pop($found);
            foreach ($items as $i => $item) {
                $answers[$item] = $found[$i] ? true : ($complete ? false : null);
            }
            $complete || $this->fail($key, 'it is lost, or not complete');
        } catch (Throwable $error) {
            if ($stale !== null && self::isStale($error)) {
                array_push($stale, ...$items);
            } else {
                $this->fail($key, $error->getMessage());
            }
        }
    }

    private function addOnce(array $items, int $replicas, ?float $age): int
    {
        $descriptor = $this->read($this->writer, $age);
        ['current' => $current, 'next' => $next, 'damage' => $damage, 'poll' => $poll] = $descriptor;
        if ($damage !== null) {
            throw new RuntimeException($damage);
        }
        // After a rebuild `next` is the generation before, until its shards are gone: old clients still ask those.
        $isRebuilt = $next && $next['generation'] < $current['generation'];
        foreach (self::group($current['shards'], $items) as [$key, , $group]) {
            self::checkAge($descriptor);
            $this->insert($key, $group, $replicas);
        }
        foreach ($next ? self::group($next['shards'], $items) : [] as [$key, , $group]) {
            self::checkAge($descriptor);
            try {
                $this->insert($key, $group, $replicas);
            } catch (RedisException $error) {
                if (!$isRebuilt || !preg_match('/WRONGTYPE|not found/', $error->getMessage())) {
                    throw $error; // else an old shard is gone, and the current ones have the items
                }
            }
        }
        self::checkAge($descriptor);
        return $poll;
    }

    /** Whoever rebuilds the filter counts on every addition to be done by then. */
    private static function checkAge(array $descriptor): void
    {
        if (self::now() > $descriptor['readAt'] + 2 * $descriptor['poll']) {
            throw new RuntimeException(self::TOO_OLD);
        }
    }

    private function insert(string $key, array $items, int $replicas): void
    {
        $this->writer->send($key, 'BF.INSERT', $key, 'NOCREATE', 'ITEMS', ...$items);
        if (!$replicas) {
            return;
        }
        // WAIT waits for what its connection has written, and BF.INSERT writes nothing if the filter has the items.
        $this->writer->send($key, 'SET', explode('}', $key)[0] . '}:wait', '1', 'EX', '60');
        if ($this->writer->send($key, 'WAIT', $replicas, 500) < $replicas) {
            throw new RuntimeException('too few replicas have the items');
        }
    }

    /** The descriptor, read again if this one is older than `$age` seconds. Throws if it cannot be had or used. */
    private function read(Nodes $nodes, ?float $age): array
    {
        $now = self::now();
        if ($this->descriptor && $now - $this->descriptor['readAt'] < ($age ?? $this->descriptor['poll'])) {
            return $this->descriptor;
        }
        $fields = $nodes->send($this->name, 'HGETALL', $this->name);
        $this->descriptor = null; // if the new one cannot be used, the old one must not be
        return $this->descriptor = [...self::parse($fields), 'readAt' => $now];
    }

    /** current; next, or null; damage: why nothing may be added, or null; base, or null; poll. */
    private static function parse(array $words): array
    {
        $fields = [];
        foreach (array_chunk($words, 2) as [$field, $value]) {
            $fields[$field] = $value;
        }
        $rule = $fields['rule'] ?? 'none';
        $state = $fields['state'] ?? 'none';
        if ($rule !== 'crc32' || $state !== 'ready') {
            throw new RuntimeException("no filter that this client can use: rule $rule, state $state");
        }
        $current = self::shards($fields, '');
        $next = $damage = null;
        if (array_filter(array_keys($fields), fn ($field) => str_starts_with((string) $field, 'next.'))) {
            try {
                $rule = $fields['next.rule'] ?? 'crc32';
                $rule === 'crc32' || throw new RuntimeException("next.rule is $rule");
                $next = self::shards($fields, 'next.');
            } catch (RuntimeException $error) { // a rebuild might lose what is added now
                $damage = "the next generation cannot be read: {$error->getMessage()}";
            }
        }
        $poll = $fields['poll'] ?? '';
        $poll = ctype_digit($poll) && $poll > 0 ? (int) $poll : 10;
        return ['current' => $current, 'next' => $next, 'damage' => $damage, 'base' => $fields['base'] ?? null, 'poll' => $poll];
    }

    /** One generation: its number, and of each shard its key and the item that marks it as complete. */
    private static function shards(array $fields, string $prefix): array
    {
        $number = function (string $name, int $most) use ($fields, $prefix): int {
            $text = $fields["$prefix$name"] ?? 'none';
            ctype_digit($text) && $text > 0 && $text <= $most || throw new RuntimeException("$prefix$name is $text");
            return (int) $text;
        };
        $count = $number('shards', 1024);
        $generation = $number('generation', PHP_INT_MAX);
        $number('capacity', PHP_INT_MAX); // these two have no use here, but a hash without them is damaged
        $error = $fields["{$prefix}error"] ?? 'none';
        is_numeric($error) && $error > 0 && $error < 1 || throw new RuntimeException("{$prefix}error is $error");
        $shards = [];
        foreach (self::markers($count) as $i => $mark) {
            $shards[] = [$fields["$prefix$i"] ?? throw new RuntimeException("field $prefix$i is missing"), $mark];
        }
        return ['generation' => $generation, 'shards' => $shards];
    }

    /** The items by shard: key, mark, items. */
    private static function group(array $shards, array $items): array
    {
        $groups = [];
        foreach ($items as $item) {
            $shard = self::shardOf($item, count($shards));
            $groups[$shard] ??= [...$shards[$shard], []];
            $groups[$shard][2][] = $item;
        }
        return $groups;
    }

    /** Whether an error may come from a descriptor that is out of date. */
    private static function isStale(Throwable $error): bool
    {
        foreach (['WRONGTYPE', 'belongs to shard', 'not found', self::TOO_OLD] as $text) {
            if (str_contains($error->getMessage(), $text)) {
                return true;
            }
        }
        return false;
    }

    private function mayAsk(string $key): bool
    {
        return self::now() >= ($this->resumeAt[$key] ?? 0.0);
    }

    /** Notes that a key gave no answer, and leaves it alone for a while. */
    private function fail(string $key, string $problem): void
    {
        $this->failures++;
        $this->resumeAt[$key] = self::now() + self::PAUSE;
        error_log("$key gave no answer: $problem");
    }

    public static function now(): float
    {
        return hrtime(true) / 1e9;
    }
}

/** Asks the database only for keys that the filter has, or gives no answer for. */
final class ShardedGuard
{
    private const LONGEST_TRANSACTION = 2.0; // seconds that the database's insert() can take, connecting and commit included
    private const REPLICAS = 1; // how many replicas must have a key before its row is written

    /** The database has get($key) and insert($key, $value). */
    public function __construct(private Sharded $filter, private object $database)
    {
    }

    /** The row of the key, or null. */
    public function lookup(string $key): ?string
    {
        return $this->filter->ask([$key])[$key] === false ? null : $this->database->get($key);
    }

    /** Adds the key to the filter, then the row to the database. If it throws, the row may be missing: try again. */
    public function insert(string $key, string $value): void
    {
        $begin = Sharded::now();
        $poll = $this->filter->add([$key], self::REPLICAS);
        if (Sharded::now() - $begin > $poll - self::LONGEST_TRANSACTION) {
            throw new RuntimeException('the filter took so long that a rebuild may miss the row');
        }
        $this->database->insert($key, $value);
    }
}

/** Claims pages that nobody has fetched, as docs/recipes/crawler.md does on a filter in one key. */
final class ShardedCrawler
{
    private const LEASE = 600; // seconds that a crawler has for a page

    /** The claims are in `new Nodes($addresses, 1.0)`. */
    public function __construct(private Sharded $filter, private Nodes $claims)
    {
    }

    /** [the URLs that are the caller's to fetch, for LEASE seconds; those to offer again later] */
    public function claim(array $urls): array
    {
        $mine = $fetch = $later = [];
        foreach (array_unique($urls) as $url) {
            try {
                if ($this->claims->send("claim:$url", 'SET', "claim:$url", 'mine', 'NX', 'EX', self::LEASE)) {
                    $mine[] = $url;
                }
            } catch (RedisException) {
                $later[] = $url;
            }
        }
        $answers = $this->filter->ask($mine); // after the claim: whoever ends one has marked the page before
        foreach ($mine as $url) {
            if ($answers[$url] === false) {
                $fetch[] = $url;
                continue;
            }
            if ($answers[$url] === null) {
                $later[] = $url;
            }
            $this->release($url);
        }
        return [$fetch, $later];
    }

    /** Marks a page after it was fetched and its results are stored. If it throws, try again within LEASE. */
    public function fetched(string $url): void
    {
        $this->filter->add([$url]);
        $this->release($url);
    }

    private function release(string $url): void
    {
        try {
            $this->claims->send("claim:$url", 'UNLINK', "claim:$url");
        } catch (RedisException) { // the claim ends by itself after LEASE
        }
    }
}
