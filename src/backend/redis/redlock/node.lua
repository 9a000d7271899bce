-- The holds of one lock at one node of a Redlock: every step on them.
--
-- Keys:
--   the lock      a string, as other Redlock clients know it: the value of the claim that holds it, which is its record;
--                 of a lock with slots 'redlock:slots:' and how many these are
--   the hold      a string that the step is about: the lock's own key, or that of a slot with the value of its claim
--   about         a hash beside the hold, which expires with it: 'since', 'token', 'label', and 'asked' with who asks the
--                 claim to leave
--   the counters  a hash: 'fence', the last token, and 'success', when the last successful run acquired
-- Arguments: the command; what the keys of slots begin with, and those beside them, and what both end with; the command's
-- own.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local lock, hold, about, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local function slot_key(n) return ARGV[2] .. n .. ARGV[4] end
local function about_key(n) return ARGV[3] .. n .. ARGV[4] end

local function micros(time) return string.format('%.0f', time) end

-- A key's value; `?` of one that is no string, as another kind of client may set.
local function value_of(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then return '?' end
  return value
end

-- How many slots a lock with this value has, if it has slots.
local function slots_of(value)
  return tonumber(string.match(value or '', '^redlock:slots:(%d+)$'))
end

-- All holds that there can be: the slot, 0 of a lock without, and the two keys.
local function holds()
  local slots = slots_of(value_of(lock))
  if not slots then return { { 0, lock, about } } end
  local all = {}
  for n = 1, slots do all[n] = { n, slot_key(n), about_key(n) } end
  return all
end

-- The holds whose values begin with `own`.
local function holds_of(own)
  local found = {}
  for _, one in ipairs(holds()) do
    local value = value_of(one[2])
    if value and string.sub(value, 1, #own) == own then found[#found + 1] = one end
  end
  return found
end

-- Has the lock of a slot say for at least `ttl` how many slots there are.
local function keep_marker(marker, ttl)
  local left = redis.call('PTTL', lock)
  if left == -2 then
    redis.call('SET', lock, marker, 'PX', ttl)
  elseif left >= 0 and left < ttl then
    redis.call('PEXPIRE', lock, ttl)
  end
end

-- What the hold of another program's client is shown as: the same for as long as its key says the same. A key that is no
-- string says what it is made of. An error if that cannot be told, and false if nobody holds.
local function foreign_identity(key)
  local value = redis.pcall('GET', key)
  if type(value) == 'table' then value = redis.pcall('DUMP', key) end
  if type(value) ~= 'string' then return value end
  return string.sub(redis.sha1hex(key .. '\0' .. value), 1, 32)
end

-- The last success is that of the run which acquired last: of those who hold together it may end first. One that is dated
-- more than a minute later than now tells nothing.
local function record_success(since)
  local last, clock = tonumber(redis.call('HGET', counters, 'success') or 0), redis.call('TIME')
  if last < tonumber(since) or last > (clock[1] + 60) * 1000000 + clock[2] then
    redis.call('HSET', counters, 'success', since)
  end
end

-- The answer of an attempt that found a key with the value `by`, for `life` more: which slots are free besides.
local function taken(by, life)
  local free = {}
  for n = 1, slots_of(value_of(lock)) or 0 do
    local left = redis.call('PTTL', slot_key(n))
    if left == -2 then
      free[#free + 1] = n
    elseif left >= 0 then
      life = math.min(life, left)
      by = by or value_of(slot_key(n))
    end
  end
  return { 'taken', by or '?', life, free }
end

local commands = {}

-- One attempt to hold: sets the key unless something is in its way. `proposal` is for the token; `marker` is what a lock
-- with slots says, and nothing of one without.
function commands.acquire(value, ttl, proposal, marker)
  ttl = tonumber(ttl)
  local there = value_of(lock)
  if there and there ~= marker and there ~= value then
    -- The holders of slots are in the slots' keys.
    return taken(not slots_of(there) and there, redis.call('PTTL', lock))
  end
  if hold ~= lock then
    local other = value_of(hold)
    if other and other ~= value then return taken(other, redis.call('PTTL', hold)) end
    keep_marker(marker, ttl)
  end
  redis.call('SET', hold, value, 'PX', ttl)
  local last = tonumber(redis.call('HGET', counters, 'fence') or 0)
  local token = micros(math.max(tonumber(proposal), last + 1))
  redis.call('HSET', counters, 'fence', token)
  local clock = redis.call('TIME')
  redis.call('DEL', about)
  redis.call('HSET', about, 'since', micros(clock[1] * 1000000 + clock[2]), 'token', token)
  redis.call('PEXPIRE', about, ttl)
  return { 'given', token }
end

-- Gives the hold another ttl where the key still says so, or, with `again` ('1'), where it is gone; no later token is lower
-- than its own. Answers whether it did.
function commands.extend(value, ttl, token, marker, again)
  ttl = tonumber(ttl)
  local there = value_of(lock)
  if hold ~= lock and there and there ~= marker then return 0 end
  local own = value_of(hold)
  if own and own ~= value or not own and again ~= '1' then return 0 end
  if own then redis.call('PEXPIRE', hold, ttl) else redis.call('SET', hold, value, 'PX', ttl) end
  if hold ~= lock then keep_marker(marker, ttl) end
  if redis.call('HGET', about, 'token') ~= token then redis.call('HSET', about, 'token', token) end
  redis.call('PEXPIRE', about, ttl)
  if tonumber(redis.call('HGET', counters, 'fence') or 0) < tonumber(token) then
    redis.call('HSET', counters, 'fence', token)
  end
  return 1
end

-- Removes the holds whose values begin with `own`; `succeeded` ('1') if their run was a success. Answers how many there
-- were.
function commands.release(own, succeeded)
  local found = holds_of(own)
  for _, one in ipairs(found) do
    local since = redis.call('HGET', one[3], 'since')
    redis.call('DEL', one[2], one[3])
    if since and succeeded == '1' then record_success(since) end
  end
  local slots = slots_of(value_of(lock))
  for n = 1, slots or 0 do
    if redis.call('EXISTS', slot_key(n)) == 1 then return #found end
  end
  if slots then redis.call('DEL', lock) end
  return #found
end

-- Has what is kept beside those holds say `text` in `field`. Answers how many there are.
function commands.note(own, field, text)
  local found = holds_of(own)
  for _, one in ipairs(found) do
    redis.call('HSET', one[3], field, text)
    redis.call('PEXPIRE', one[3], math.max(1, redis.call('PTTL', one[2])))
  end
  return #found
end

-- Removes the hold of another program's client if it is still what the id stands for. Answers whether it was.
function commands.evict_foreign(id)
  local identity = foreign_identity(lock)
  if type(identity) == 'table' then return identity end
  if identity ~= id then return 0 end
  redis.call('DEL', lock)
  return 1
end

-- Reads the holds and changes nothing: of each the slot, its value, what is left of it, what is kept beside it, and what it
-- is shown as if another program's client set it.
function commands.inspect()
  local found = {}
  for _, one in ipairs(holds()) do
    local value = value_of(one[2])
    if value then
      local kept = redis.call('HMGET', one[3], 'since', 'token', 'label')
      local identity = foreign_identity(one[2])
      if type(identity) ~= 'string' then identity = false end
      found[#found + 1] = { one[1], value, redis.call('PTTL', one[2]), kept[1], kept[2], kept[3], identity }
    end
  end
  return found
end

return commands[ARGV[1]](unpack(ARGV, 5))
