"""The scripts of the guard. Each runs in the server as a whole, so nothing happens between its lines.

Keys: the filter, its state (a hash), the filter under construction, the lock. Fields of the state:

    trusted         replication ID of the primary under which the filter has all keys
    token           names the lookup script that was loaded when that was found
    heartbeat       milliseconds: every key that a guard added later may be missing in a copy of this state
    late:PROCESS    "covered seen": rows of a guard with on_unavailable="later" are covered up to the first
                    time; it was heard of last at the second
    late:outside    the same for writers without a guard (`refresh`)

Times are the earlier of the server's clock and the caller's: a clock that is ahead would lose rows.
"""

from __future__ import annotations

COMPLETE = ("guard: complete 1", "guard: complete 2", "guard: complete 3")
"""Items that a build adds last. Three: a filter without them has all three by chance once in 10^6 at 1 %."""

_ITEMS = ", ".join(f"'{item}'" for item in COMPLETE)

_COMMON = f"""#!lua
-- The replication ID: a restart and a promotion change it. nil on a replica.
local function identity()
  return string.match(redis.call('INFO', 'replication'), 'role:master.*master_replid:(%x+)')
end
local function complete(key)
  for _, found in ipairs(redis.call('BF.MEXISTS', key, {_ITEMS})) do
    if found ~= 1 then return false end
  end
  return true
end
local function now(theirs)
  local time = redis.call('TIME')
  return math.min(time[1] * 1000 + math.floor(time[2] / 1000), tonumber(theirs))
end
local function text(milliseconds) return string.format('%.0f', milliseconds) end
local function state(key)
  local fields, flat = {{}}, redis.call('HGETALL', key)
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end
"""

# KEYS filter, state: of each item a digit, 1 or 0, in one string, which clients parse faster than an array;
# null if the filter is not trusted. With four keys it is `trust`: it marks the filter as trusted, and itself.
# A server has this script only if `trust` ran in the same process, since the token is random. It is no
# read-only script, so a replica refuses it.
_LOOKUP = f"""#!lua
-- %s
if not KEYS[3] then
  if redis.call('HGET', KEYS[2], 'token') ~= '%s' then return false end
  local found = redis.call('BF.MEXISTS', KEYS[1], {_ITEMS}, unpack(ARGV))
  return found[1] + found[2] + found[3] == 3 and table.concat(found, '', 4)
end
"""

# KEYS filter, state, new, lock. ARGV id, begin, caller, identity of the new filter or ''.
# id '' stands for the one under which the filter is trusted.
_TRUST = f"""
local id, fields = identity(), state(KEYS[2])
local wanted = ARGV[1] ~= '' and ARGV[1] or fields.trusted
if not id or id ~= wanted then return redis.error_reply('ERR the server changed') end
if ARGV[4] ~= '' then
  if redis.call('EXISTS', KEYS[3]) == 0 or redis.call('BF.INFO', KEYS[3], 'IDENTITY')[1] ~= ARGV[4] then
    return redis.error_reply('ERR the new filter is lost, or another build has begun')
  end
  local added = redis.pcall('BF.INSERT', KEYS[3], 'NOCREATE', 'ITEMS', {_ITEMS})
  if added.err or type(added[#added]) == 'table' then
    return redis.error_reply('ERR the new filter cannot be completed')
  end
  redis.call('RENAME', KEYS[3], KEYS[1])
  fields.heartbeat = nil
end
if not complete(KEYS[1]) then return redis.error_reply('ERR there is no complete filter') end
redis.call('HSET', KEYS[2], 'trusted', id, 'token', token)
if ARGV[2] ~= '' then
  local begin = tonumber(ARGV[2])
  redis.call('HSET', KEYS[2], 'heartbeat', text(math.max(begin, tonumber(fields.heartbeat or 0))))
  for name, value in pairs(fields) do
    local covered, seen = string.match(value, '^(%d+) (%d+)$')
    if covered and tonumber(covered) < begin then
      redis.call('HSET', KEYS[2], name, text(begin) .. ' ' .. seen)
    end
  end
end
if redis.call('GET', KEYS[4]) == ARGV[3] then redis.call('UNLINK', KEYS[4]) end
return token
"""


def lookup(token: str) -> str:
    """The script of a token, which asks, and with four keys trusts."""
    head = _LOOKUP % (token, token)
    return head + f"local token = '{token}'\n" + _COMMON[len("#!lua\n") :] + _TRUST


# KEYS filter, state. The token if the filter is trusted, else ''.
VERIFY = (
    _COMMON
    + """
local fields = state(KEYS[2])
if fields.trusted and fields.trusted == identity() and fields.token then return fields.token end
return ''
"""
)

# KEYS filter, state, new. ARGV items. The identity of the server, '' on none.
INSERT = (
    _COMMON
    + """
for _, key in ipairs({KEYS[3], KEYS[1]}) do
  local answer = redis.pcall('BF.INSERT', key, 'NOCREATE', 'ITEMS', unpack(ARGV))
  if answer.err then  -- a filter that does not exist needs no key
    if not string.find(answer.err, 'not found', 1, true) then return answer end
  elseif type(answer[#answer]) == 'table' and answer[#answer].err then
    return answer[#answer]
  end
end
return identity() or ''
"""
)

# KEYS filter, state, new. ARGV error, capacity. Identities of server and new filter.
RESERVE = (
    _COMMON
    + """
local id = identity()
if not id then return redis.error_reply('ERR this is no primary') end
redis.call('UNLINK', KEYS[3])
redis.call('BF.RESERVE', KEYS[3], ARGV[1], ARGV[2])
return {id, redis.call('BF.INFO', KEYS[3], 'IDENTITY')[1], text(now(ARGV[3]))}
"""
)

# KEYS filter, state, new, lock. ARGV clock, caller, covers, stale, refresh, lease. `covers` says what
# the caller vouches for: '' nothing, 'all' that it has no late keys, or the identity of the server
# to which it has just added all of them. Returns what is to be done, and for 'catch up' from when.
TICK = (
    _COMMON
    + """
local id, fields, time = identity(), state(KEYS[2]), now(ARGV[1])
if not id then return {'no primary'} end
local trusted = fields.trusted == id and complete(KEYS[1])
local own, vouched = 'late:' .. ARGV[2], 0
if fields.trusted ~= id and fields.token then redis.call('HDEL', KEYS[2], 'token') end
if ARGV[3] ~= '' and (not fields[own] or (trusted and (ARGV[3] == 'all' or ARGV[3] == id))) then
  if ARGV[3] == 'all' or ARGV[3] == id then
    fields[own], vouched = text(time) .. ' ' .. text(time), 1
    redis.call('HSET', KEYS[2], own, fields[own])
  end
end
if tonumber(ARGV[5]) > 0 and not fields['late:outside'] then
  fields['late:outside'] = text(time) .. ' ' .. text(time)
  redis.call('HSET', KEYS[2], 'late:outside', fields['late:outside'])
end
if not fields.heartbeat or not complete(KEYS[1]) then return {'incomplete', vouched} end
local since, due = tonumber(fields.heartbeat), not trusted
for name, value in pairs(fields) do
  local covered, seen = string.match(value, '^(%d+) (%d+)$')
  if covered then
    local limit = tonumber(ARGV[name == 'late:outside' and 5 or 4])
    since = math.min(since, tonumber(covered))
    due = due or (limit > 0 and time - covered > limit)
    if name ~= 'late:outside' and covered - seen > 86400000 and trusted then redis.call('HDEL', KEYS[2], name) end
  end
end
if trusted then redis.call('HSET', KEYS[2], 'heartbeat', text(time)) end
if not due or ARGV[6] == '0' then return {trusted and 'trusted' or 'untrusted', vouched} end
if not redis.call('SET', KEYS[4], ARGV[2], 'NX', 'PX', ARGV[6]) then return {'locked', vouched} end
return {'catch up', vouched, id, text(since), text(time)}
"""
)
