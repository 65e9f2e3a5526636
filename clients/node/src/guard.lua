-- The scripts of the guard, for the libraries in all languages. Each is `common` and the section of its name; only
-- `lookup` is its section alone. Each runs in the server as a whole, so nothing happens between its lines.
--
-- KEYS are the filter, its state (a hash), the filter under construction, the lock: those that a script needs.
-- Fields of the state:
--
--     trusted         replication ID of the primary under which the filter has all keys
--     token           names the lookup script that this primary got when the filter was found to have all keys
--     heartbeat       milliseconds: every key that a guard added later may be missing in a copy of this state
--     late:PROCESS    "covered seen": rows of a guard with on_unavailable="later" are covered up to the first
--                     time; it was heard of last at the second, by the server's clock
--     late:outside    the same for writers without a guard (`refresh`), who are heard of by each catch-up
--
-- Other times are the earlier of the server's clock and the caller's: a clock that is ahead would lose rows.
--
-- lookup   ARGV keys. Returns for each key a digit, 1 or 0, in one string, which clients parse faster than an
--          array; null if the filter is not trusted. For one key it saves concat, a tenth of the script's time.
--          Without keys, the identity of the server, and the token if the filter is trusted. It writes nothing,
--          so it may run at maxmemory; but it has no flag no-writes, so a replica refuses it. TOKEN is replaced.
--          Only `trust` may load the script of a token that is in use: a server that has it is trusted.
-- trust    ARGV id, begin, caller, identity of the new filter or '', token, identity of the server that has the
--          script of the token. id '' stands for the one under which the filter is trusted. Returns the token.
-- insert   ARGV items. Returns the identity of the server.
-- reserve  ARGV error, capacity, clock. Returns the identities of server and new filter, and the time.
-- tick     ARGV clock, caller, covers, stale, refresh, lease. `covers` says what the caller vouches for: ''
--          nothing, 'all' that it has no late keys, or the identity of the server to which it has just added
--          all of them. Returns what is to be done, whether the caller's rows are covered, and for 'catch up'
--          identity, since when, and the time.

--- lookup
#!lua flags=allow-oom
if not ARGV[1] then
  local id = string.match(redis.call('INFO', 'replication'), 'role:master.*master_replid:(%x+)')
  local trusted = id and id == redis.call('HGET', KEYS[2], 'trusted')
  return {id or '', trusted and redis.call('HGET', KEYS[2], 'token') or ''}
end
if redis.call('HGET', KEYS[2], 'token') ~= 'TOKEN' then return false end
local found = redis.call('BF.MEXISTS', KEYS[1], 'guard: complete 1', 'guard: complete 2', 'guard: complete 3',
  unpack(ARGV))
if found[1] + found[2] + found[3] < 3 then return false end
if not ARGV[2] then return found[4] == 1 and '1' or '0' end
return table.concat(found, '', 4)

--- common
#!lua
-- The replication ID: a restart and a promotion change it. nil on a replica.
local id = string.match(redis.call('INFO', 'replication'), 'role:master.*master_replid:(%x+)')
-- Items that a build adds last. Three: a filter without them has all by chance once in 10^6 at 1 %.
local marks = {'guard: complete 1', 'guard: complete 2', 'guard: complete 3'}
local function complete(key)
  local found = redis.call('BF.MEXISTS', key, unpack(marks))
  return found[1] + found[2] + found[3] == 3
end
local function add(key, items) return redis.pcall('BF.INSERT', key, 'NOCREATE', 'ITEMS', unpack(items)) end
local function now(theirs)
  local time = redis.call('TIME')
  local ours = time[1] * 1000 + math.floor(time[2] / 1000)
  return math.min(ours, tonumber(theirs)), ours
end
-- Removes the trust in another server that had this state. Otherwise that server would be trusted again if the slot
-- has moved away from it and comes back.
local function distrust()
  local trusted = redis.call('HGET', KEYS[2], 'trusted')
  if trusted and trusted ~= id then redis.call('HDEL', KEYS[2], 'trusted', 'token') end
end
local function text(milliseconds) return string.format('%.0f', milliseconds) end
local function state(key)
  local fields, flat = {}, redis.call('HGETALL', key)
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

--- trust
local fields = state(KEYS[2])
local wanted = ARGV[1] ~= '' and ARGV[1] or fields.trusted
if not id or id ~= wanted or id ~= ARGV[6] then return redis.error_reply('ERR the server changed') end
if ARGV[4] ~= '' then
  if redis.pcall('BF.INFO', KEYS[3], 'IDENTITY')[1] ~= ARGV[4] then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
  add(KEYS[3], marks)
  if not complete(KEYS[3]) then return redis.error_reply('ERR the new filter cannot be completed') end
  redis.call('RENAME', KEYS[3], KEYS[1])
  fields.heartbeat = nil
end
if not complete(KEYS[1]) then return redis.error_reply('ERR there is no complete filter') end
redis.call('HSET', KEYS[2], 'trusted', id, 'token', ARGV[5])
if ARGV[2] ~= '' then
  local begin = tonumber(ARGV[2])
  redis.call('HSET', KEYS[2], 'heartbeat', text(math.max(begin, tonumber(fields.heartbeat or 0))))
  for name, value in pairs(fields) do
    local covered, seen = string.match(value, '^(%d+) (%d+)$')
    if covered and tonumber(covered) < begin then
      redis.call('HSET', KEYS[2], name, text(begin) .. ' ' .. (name == 'late:outside' and text(begin) or seen))
    end
  end
end
if redis.call('GET', KEYS[4]) == ARGV[3] then redis.call('UNLINK', KEYS[4]) end
return ARGV[5]

--- insert
if not id then return redis.error_reply('READONLY this is no primary') end
distrust()
for _, key in ipairs({KEYS[3], KEYS[1]}) do
  local answer = add(key, ARGV)
  local failure = answer.err and answer or answer[#answer]
  -- A filter that does not exist needs no key.
  if type(failure) == 'table' and not string.find(failure.err, 'not found', 1, true) then return failure end
end
return id

--- reserve
if not id then return redis.error_reply('ERR this is no primary') end
redis.call('UNLINK', KEYS[3])
redis.call('BF.RESERVE', KEYS[3], ARGV[1], ARGV[2])
return {id, redis.call('BF.INFO', KEYS[3], 'IDENTITY')[1], text(now(ARGV[3]))}

--- tick
if not id then return {'no primary', 0} end
distrust()
local fields, time, ours = state(KEYS[2]), now(ARGV[1])
local trusted = fields.trusted and complete(KEYS[1])
local own, vouched = 'late:' .. ARGV[2], 0
local function cover(name)
  fields[name] = text(time) .. ' ' .. text(ours)
  redis.call('HSET', KEYS[2], name, fields[name])
end
if (ARGV[3] == 'all' or ARGV[3] == id) and (trusted or not fields[own]) then
  vouched = 1
  cover(own)
end
if tonumber(ARGV[5]) > 0 and not fields['late:outside'] then cover('late:outside') end
if not fields.heartbeat or not complete(KEYS[1]) then return {'incomplete', vouched} end
local since, due = tonumber(fields.heartbeat), not trusted
for name, value in pairs(fields) do
  local covered, seen = string.match(value, '^(%d+) (%d+)$')
  if covered then
    local limit = tonumber(ARGV[name == 'late:outside' and 5 or 4])
    since = math.min(since, tonumber(covered))
    -- The longer nothing was heard of a process, the rarer are the catch-ups for it.
    due = due or (limit > 0 and time - math.max(covered, seen) > math.max(limit, covered - seen))
    if covered - seen > 86400000 and trusted then redis.call('HDEL', KEYS[2], name) end
  end
end
if trusted then redis.call('HSET', KEYS[2], 'heartbeat', text(time)) end
if not due or ARGV[6] == '0' then return {trusted and 'trusted' or 'untrusted', vouched} end
-- The caller's own lock is that of a catch-up that failed.
if redis.call('GET', KEYS[4]) ~= ARGV[2] and not redis.call('SET', KEYS[4], ARGV[2], 'NX', 'PX', ARGV[6]) then
  return {'locked', vouched}
end
return {'catch up', vouched, id, text(since), text(time)}
