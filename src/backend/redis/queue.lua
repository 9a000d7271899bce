-- The queues of locks in one Redis: every step on them, by the server's clock.
--
-- Keys, four for each name, all in one slot of a cluster:
--   the lock      a string that other clients understand: the id of the claim that holds it exclusively. For holds that
--                 can be shared it is 'dlock:' and the mode. It expires with the last of the present holds.
--   the queue     a sorted set of the ids of all claims, in order of arrival; holders are in front of waiters.
--   the counters  a hash: 'fence' and 'born', the last and the first token, and 'success', when the last successful run
--                 acquired.
--   the claim     a hash of the claim that the step concerns, which expires with its lease:
--                 'mode', 'about' (its record), 'since' and 'supersede' since it entered; 'top' once it is the first
--                 waiter;
--                 'token', 'held' and 'slot' once it holds; 'asked', the client that asks it to leave; 'label' once
--                 published;
--                 'gone' and 'by' once it is out of the queue, until the hash expires.
-- Arguments: the command; the claim's id; for each name the beginning and the end of claims' keys; the command's own.
-- The keys of other claims are derived from their ids in the queue, since the next claim is not known in advance.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local command, id = ARGV[1], ARGV[2]
local names = #KEYS / 4
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]

local function lock_key(n) return KEYS[4 * n - 3] end
local function queue_key(n) return KEYS[4 * n - 2] end
local function counters_key(n) return KEYS[4 * n - 1] end
local function claim_key(n) return KEYS[4 * n] end
local function claim_of(n, who) return ARGV[2 * n + 1] .. who .. ARGV[2 * n + 2] end

local function micros(time) return string.format('%.0f', time) end

local MARK = 'dlock:'

-- Returns the lock's value. A key that is not a string belongs to another program's client, and is taken.
local function value_of(n)
  local value = redis.pcall('GET', lock_key(n))
  if type(value) == 'table' then return '?' end
  return value
end

local function is_marker(value) return value and string.sub(value, 1, #MARK) == MARK end

-- Returns the value of the lock's key that proves a hold of that mode.
local function proof(mode, who)
  if mode == 'exclusive' then return who end
  return MARK .. mode
end

local function is_slots(mode) return string.sub(mode, 1, 6) == 'slots:' end

-- Claims of different kinds do not mix.
local function kind_of(mode)
  if is_slots(mode) then return mode end
  return 'mutex'
end

-- Keeps a queue for a day longer than its claims, so that an idle one is removed at last.
local function keep_queue(n, ttl)
  local length = ttl + 86400000
  if redis.call('PTTL', queue_key(n)) < length - 3600000 then redis.call('PEXPIRE', queue_key(n), length) end
end

-- Grants the lock to a waiter for the rest of its lease.
local function grant(n, who, mode, used)
  local key, lock = claim_of(n, who), lock_key(n)
  local last = redis.call('HGET', counters_key(n), 'fence')
  local token = micros(math.max(tonumber(last or 0) + 1, now))
  if last then
    redis.call('HSET', counters_key(n), 'fence', token)
  else
    redis.call('HSET', counters_key(n), 'fence', token, 'born', token)
  end
  local left = math.max(redis.call('PTTL', key), 1)
  if mode ~= 'exclusive' then left = math.max(left, redis.call('PTTL', lock)) end
  redis.call('SET', lock, proof(mode, who), 'PX', left)
  redis.call('HSET', key, 'token', token, 'held', micros(now))
  if is_slots(mode) then
    local slot = 1
    while used[tostring(slot)] do slot = slot + 1 end
    used[tostring(slot)] = true
    redis.call('HSET', key, 'slot', slot)
  end
end

-- Returns whether a waiter of that mode may hold next to the `holds` holds in front of it, of mode `mode_of_holds`. A
-- waiter of an unknown mode is granted by a newer dlock, which knows the mode.
local function may_hold(mode, value, holds, mode_of_holds)
  if mode == 'exclusive' then return holds == 0 and not value end
  if value and value ~= proof(mode) then return false end
  if mode == 'shared' then return holds == 0 or mode_of_holds == 'shared' end
  return is_slots(mode) and holds < tonumber(string.sub(mode, 7))
end

-- Removes dead claims at the front of the queue, grants the lock in order of arrival, and marks the first remaining
-- waiter as such. Does not read claims behind that one.
local function settle(n)
  local lock, queue, value = lock_key(n), queue_key(n), value_of(n)
  local holds, mode_of_holds, longest, used = 0, false, 0, {}
  while true do
    local who = redis.call('ZRANGE', queue, holds, holds)[1]
    if not who then break end
    local key = claim_of(n, who)
    local c = redis.call('HMGET', key, 'mode', 'token', 'slot')
    -- An exclusive hold outlives its hash if only its lock's key could be renewed.
    local mode, is_waiter = c[1] or 'exclusive', c[1] and not c[2]
    if c[3] then used[c[3]] = true end
    if is_waiter then
      if holds == 0 and is_marker(value) then
        redis.call('DEL', lock)
        value = false
      end
      if not may_hold(mode, value, holds, mode_of_holds) then
        redis.call('HSETNX', key, 'top', '1')
        break
      end
      grant(n, who, mode, used)
      value = proof(mode, who)
    end
    if value == proof(mode, who) then
      holds, mode_of_holds = holds + 1, mode
      if mode ~= 'exclusive' then longest = math.max(longest, redis.call('PTTL', key)) end
    else
      redis.call('ZREM', queue, who)
      if c[1] then redis.call('HSET', key, 'gone', 'lost') end
    end
  end
  if holds == 0 and is_marker(value) then
    redis.call('DEL', lock)
  elseif longest > 0 and redis.call('PTTL', lock) ~= longest then
    redis.call('PEXPIRE', lock, longest)
  end
end

-- Removes a claim from the queue and the lock.
local function remove(n, who)
  redis.call('ZREM', queue_key(n), who)
  if value_of(n) == who then redis.call('DEL', lock_key(n)) end
end

-- Returns whether the claim lives in that queue, and its mode if it holds.
local function standing(n)
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'gone')
  local lives = c[1] and not c[3] and (not c[2] or value_of(n) == proof(c[1], id))
  return lives, c[2] and c[1]
end

-- Returns for how long time alone changes nothing for a waiter: its own lease, and those of the claims that it waits
-- for.
local function horizon(n, is_top, mode, value, ahead)
  local keys = { claim_key(n) }
  if not is_top and ahead > 0 then
    local before = redis.call('ZRANGE', queue_key(n), ahead - 1, ahead - 1)[1]
    keys[2] = claim_of(n, before)
  elseif is_slots(mode) and is_marker(value) then
    for _, who in ipairs(redis.call('ZRANGE', queue_key(n), 0, ahead - 1)) do keys[#keys + 1] = claim_of(n, who) end
  else
    keys[2] = lock_key(n)
  end
  local least = -1
  for _, key in ipairs(keys) do
    local left = redis.call('PTTL', key)
    if left >= 0 and (least < 0 or left < least) then least = left end
  end
  return least
end

-- Returns a claim for display: ClaimHash in row.rs.
local function entry(n, who)
  local key = claim_of(n, who)
  local c = redis.call('HMGET', key, 'about', 'label', 'token', 'slot', 'held', 'since')
  return { who, c[1], c[2], c[3], c[4], c[5], c[6], redis.call('PTTL', key) }
end

-- Returns the position of the claim in one queue, Row in row.rs: the fields that its client watches, the lock's value,
-- its token, its slot, why it is gone and by which client. Then follow the number of claims ahead, when time alone may
-- change the state, and, for a waiter, the front claim. Unset parts are false, because nil would end the row.
local function position(n)
  local c = redis.call('HMGET', claim_key(n), 'token', 'gone', 'asked', 'top', 'mode', 'slot', 'by')
  local token, gone, top, mode, value = c[1], c[2], c[4], c[5], value_of(n)
  if not mode and value == id then
    -- The hash has expired, and the lock's key proves the hold.
    mode, token = 'exclusive', redis.call('HGET', counters_key(n), 'fence')
  end
  local ahead = not token and redis.call('ZRANK', queue_key(n), id)
  if not gone and (not mode or (token and value ~= proof(mode, id)) or not (token or ahead)) then gone = 'lost' end
  local row = { { c[1], c[2], c[3], c[4] }, value, token, c[6], gone, c[7] }
  if not token and not gone then
    row[7], row[8] = ahead, horizon(n, top, mode, value, ahead)
    row[9] = entry(n, redis.call('ZRANGE', queue_key(n), 0, 0)[1])
  elseif not gone then
    row[7], row[8] = 0, redis.call('PTTL', claim_key(n))
  elseif gone == 'lost' then
    -- Counters are never removed. If their first token is later than the claim's, all keys were removed.
    local counters = redis.call('HMGET', counters_key(n), 'fence', 'born')
    row[7] = counters[2] or (not counters[1] and micros(now))
  end
  return row
end

local function positions()
  local rows = {}
  for n = 1, names do rows[n] = position(n) end
  return rows
end

-- Returns the id under which the hold of another program's client is shown, which is stable while the lock's key is
-- unchanged. For a key that is not a string, its serialised value counts. Returns an error if it cannot be read, and
-- false if the lock is free.
local function foreign_identity(n)
  local value = redis.pcall('GET', lock_key(n))
  if type(value) == 'table' then value = redis.pcall('DUMP', lock_key(n)) end
  if type(value) ~= 'string' then return value end
  return string.sub(redis.sha1hex(lock_key(n) .. '\0' .. value), 1, 32)
end

-- Records a success: the last one is of the run that acquired last, because that run may end before another one with
-- which it shared the lock. A time more than a minute in the future is ignored.
local function record_success(n, held)
  local last = tonumber(redis.call('HGET', counters_key(n), 'success'))
  if not last or last < tonumber(held) or last > now + 60000000 then
    redis.call('HSET', counters_key(n), 'success', held)
  end
end

local commands = {}

-- Returns the positions of the claim, after all due changes.
function commands.look()
  for n = 1, names do settle(n) end
  return positions()
end

-- Renews the claim by a lease of `ttl`. A claim that is gone from one queue is gone.
function commands.renew(ttl)
  local alive, holds = 1, {}
  for n = 1, names do
    local lives
    lives, holds[n] = standing(n)
    if not lives then alive = 0 end
  end
  for n = 1, names do
    if alive == 1 then
      redis.call('PEXPIRE', claim_key(n), ttl)
      keep_queue(n, ttl)
      if holds[n] and (holds[n] == 'exclusive' or redis.call('PTTL', lock_key(n)) < tonumber(ttl)) then
        redis.call('PEXPIRE', lock_key(n), ttl)
      end
    end
    if not holds[n] then settle(n) end
  end
  return { alive, positions() }
end

-- Enters all queues, or none if one contains a claim of another kind. `about` is the claim's record. `supersede` ('1')
-- removes older waiters that have it too, in favour of `by`. If called again after a lost answer, it renews.
function commands.enter(about, mode, ttl, by, supersede)
  for n = 1, names do
    if redis.call('EXISTS', claim_key(n)) == 1 then return { 'in', commands.renew(ttl)[2] } end
  end
  for n = 1, names do
    settle(n)
    local first = redis.call('ZRANGE', queue_key(n), 0, 0)[1]
    local c = first and redis.call('HMGET', claim_of(n, first), 'mode', 'about')
    if c and c[1] and kind_of(c[1]) ~= kind_of(mode) then return { 'mismatch', n, c[1], c[2] } end
  end
  for n = 1, names do
    if supersede == '1' then
      for _, who in ipairs(redis.call('ZRANGE', queue_key(n), 0, -1)) do
        local c = redis.call('HMGET', claim_of(n, who), 'token', 'supersede')
        if not c[1] and c[2] == '1' then
          remove(n, who)
          redis.call('HSET', claim_of(n, who), 'gone', 'superseded', 'by', by)
        end
      end
    end
    local last = redis.call('ZRANGE', queue_key(n), -1, -1, 'WITHSCORES')[2]
    redis.call('HSET', claim_key(n), 'mode', mode, 'about', about, 'since', micros(now),
      'supersede', supersede)
    redis.call('PEXPIRE', claim_key(n), ttl)
    redis.call('ZADD', queue_key(n), tonumber(last or 0) + 1, id)
    keep_queue(n, ttl)
  end
  return { 'in', commands.look() }
end

-- Leaves all queues; `succeeded` ('1') if its run was a success. Removals come first: a server without memory refuses a
-- script at the first command that may need some, but not after the script has written.
function commands.leave(succeeded)
  for n = 1, names do
    local held = redis.call('HGET', claim_key(n), 'held')
    local lives, mode_of_hold = standing(n)
    remove(n, id)
    redis.call('DEL', claim_key(n))
    if succeeded == '1' and lives and mode_of_hold then record_success(n, held) end
    settle(n)
  end
  return 1
end

-- Asks the claim to leave, or removes it, in the name of `by`. If `how` is 'ask', it only records the request, and the
-- claim's client leaves. Otherwise it removes the claim from all queues now. It also bars the claim from entering for
-- `late` milliseconds, even if it has not entered yet, because its request may be in flight. Returns whether the claim
-- was there.
function commands.evict(how, by, late)
  local is_there = 0
  for n = 1, names do
    local c = redis.call('HMGET', claim_key(n), 'mode', 'gone')
    if (c[1] and not c[2]) or value_of(n) == id then is_there = 1 end
  end
  for n = 1, names do
    if how == 'force' then
      remove(n, id)
      redis.call('HSET', claim_key(n), 'gone', 'evicted', 'by', by)
      if redis.call('PTTL', claim_key(n)) < tonumber(late) then redis.call('PEXPIRE', claim_key(n), late) end
      settle(n)
    elseif is_there == 1 then
      redis.call('HSET', claim_key(n), 'asked', by)
      -- The hash of a hold may have expired.
      if redis.call('PTTL', claim_key(n)) < 0 then
        redis.call('PEXPIRE', claim_key(n), math.max(redis.call('PTTL', lock_key(n)), 1))
      end
    end
  end
  return is_there
end

-- Returns the record of the claim in the one queue, and its token once it holds.
function commands.record()
  return redis.call('HMGET', claim_key(1), 'about', 'token')
end

-- Returns the time, and when the last successful run acquired, if there was one.
function commands.last_success()
  return { micros(now), redis.call('HGET', counters_key(1), 'success') }
end

-- Publishes a label if the claim holds. Returns whether it does.
function commands.publish(label)
  local holds = 0
  for n = 1, names do
    local lives, mode_of_hold = standing(n)
    if lives and mode_of_hold then
      redis.call('HSET', claim_key(n), 'label', label)
      holds = 1
    end
  end
  return holds
end

-- Removes the hold of another program's client from the one name, if it is still shown as that id. Returns whether it
-- was.
function commands.evict_foreign()
  local identity = foreign_identity(1)
  if type(identity) == 'table' then return identity end
  if identity ~= id then return 0 end
  redis.call('DEL', lock_key(1))
  settle(1)
  return 1
end

-- Reads the queue of the one name and changes nothing. Returns the lock's value, the rest of its life, the claims in
-- order, and the id of a hold of another program's client.
function commands.inspect()
  local value = value_of(1)
  local entries, is_known = {}, false
  for _, who in ipairs(redis.call('ZRANGE', queue_key(1), 0, -1)) do
    entries[#entries + 1] = entry(1, who)
    is_known = is_known or who == value
  end
  -- The queue of this hold is gone. Tokens of redis-py look like claim ids, but have no claim.
  if value and not is_known and #value == 32 and redis.call('EXISTS', claim_of(1, value)) == 1 then
    table.insert(entries, 1, entry(1, value))
  end
  local foreign = value and foreign_identity(1)
  return { value, redis.call('PTTL', lock_key(1)), entries, type(foreign) == 'string' and foreign }
end

return commands[command](unpack(ARGV, 2 * names + 3))
