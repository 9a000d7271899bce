-- The queues of locks in one Redis: the claims of each in order of arrival, by the server's clock. No step decides which
-- claim holds; their clients find that in what is shown.
--
-- Keys, six for each name, all in one slot of a cluster:
--   the lock      a string that other clients understand. It names the first claim in the queue: by its id, or by 'dlock:'
--                 and its mode if it can share the lock. It expires with that claim's lease, or with the longest lease.
--   the queue     a sorted set of the ids of all claims; the score is the claim's token, which rises with each arrival.
--   the writers   a sorted set of those that do not share the lock with 'shared' ones, with the same scores.
--   the leases    a sorted set of all of them; the score is the end of the lease, in milliseconds.
--   the counters  a hash: 'fence', the last token; 'named', the claim that the lock's key was last set for; 'success',
--                 when the last successful run acquired.
--   the claim     a hash of the claim that makes the step. Renewals leave it unchanged, so that it can be watched:
--                 'mode', 'about' (its record) and 'since' since it entered; 'taken' once it was shown that the
--                 lock's key stands for it, too; 'slot' once it has one; 'held' once that is recorded; 'asked', the
--                 client that asks it to leave; 'label' once published;
--                 'gone' and 'by' once it is out of the queue, until the hash expires.
-- Arguments: the command; the claim's id and mode; for each name the beginning and the end of claims' keys; the command's
-- own. The keys of other claims are derived from their ids in the queue.

-- Before Redis 7 a script that reads the clock may write only after this.
if redis.replicate_commands then redis.replicate_commands() end

local command, id, mode = ARGV[1], ARGV[2], ARGV[3]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local now_ms = math.floor(now / 1000)
local MARK = 'dlock:'
local slots = tonumber(string.match(mode, '^slots:(%d+)$'))

local names = {}
for n = 1, #KEYS / 6 do
  local k, a = 6 * n - 5, 2 * n + 2
  names[n] = {
    lock = KEYS[k], queue = KEYS[k + 1], writers = KEYS[k + 2], leases = KEYS[k + 3], counters = KEYS[k + 4],
    own = KEYS[k + 5], before = ARGV[a], after = ARGV[a + 1],
  }
end

local function claim(name, who) return name.before .. who .. name.after end

local function text(number) return string.format('%.0f', number) end

-- Returns the lock's value. A key that is not a string belongs to another program's client, and is taken.
local function value_of(name)
  local value = redis.pcall('GET', name.lock)
  if type(value) == 'table' then return '?' end
  return value
end

-- Returns the id of another program's client's hold, which is stable while the lock's key is unchanged. For a key that
-- is not a string, its serialised value counts.
local function foreign_id(name, value)
  if value == '?' then value = redis.call('DUMP', name.lock) end
  return string.sub(redis.sha1hex(name.lock .. '\0' .. value), 1, 32)
end

-- Returns whether dlock set the lock's key. Tokens of redis-py look like claim ids, but are not in the queue.
local function is_own(name, value)
  return string.sub(value, 1, #MARK) == MARK or redis.call('ZSCORE', name.queue, value)
end

-- Returns the value of the lock's key that names a claim, and whether the claim lives as far as its keys tell: its hash is
-- there, and if the lock's key stood for it once, it still does.
local function proof(name, who, value)
  local c = redis.call('HMGET', claim(name, who), 'mode', 'taken', 'slot')
  local named = who
  if c[1] and c[1] ~= 'exclusive' then named = MARK .. c[1] end
  local stood = c[2] or c[3] or redis.call('HGET', name.counters, 'named') == who
  return named, c[1] and (value == named or not stood)
end

-- Returns the rest of a claim's lease.
local function left(name, who)
  return math.max((redis.call('ZSCORE', name.leases, who) or now_ms) - now_ms, 0)
end

local DAY = 86400000

-- Keeps a key for a day longer than the claims, so that it is removed at last.
local function keep(key, ttl)
  local life = ttl + DAY
  if redis.call('PTTL', key) < life - 3600000 then redis.call('PEXPIRE', key, text(life)) end
end

-- Removes a claim from the queue and the lock. Returns whether it was there.
local function remove(name, who)
  local was_there = redis.call('ZREM', name.queue, who)
  redis.call('ZREM', name.writers, who)
  redis.call('ZREM', name.leases, who)
  if value_of(name) == who then was_there = redis.call('DEL', name.lock) end
  return was_there == 1
end

local function bury(name, who)
  remove(name, who)
  redis.call('DEL', claim(name, who))
end

-- Removes dead claims, and makes the lock's key name the first one unless another program has it. Returns the value.
local function settle(name)
  for _, who in ipairs(redis.call('ZRANGEBYSCORE', name.leases, '-inf', text(now_ms))) do bury(name, who) end
  local value = value_of(name)
  local first, named, lives
  repeat
    first, lives = redis.call('ZRANGE', name.queue, 0, 0)[1], true
    if first then named, lives = proof(name, first, value) end
    if not lives then
      bury(name, first)
      value = value_of(name)
    end
  until lives
  if first and value ~= named and not (value and not is_own(name, value)) then
    local life = left(name, first)
    if named ~= first then
      -- Others that share the lock may have longer leases.
      life = (redis.call('ZRANGE', name.leases, -1, -1, 'WITHSCORES')[2] or 0) - now_ms
    end
    redis.call('SET', name.lock, named, 'PX', text(math.max(life, 1)))
    redis.call('HSET', name.counters, 'named', first)
    value = named
  elseif not first and value and is_own(name, value) then
    redis.call('DEL', name.lock)
    value = false
  end
  if first and first ~= id and redis.call('ZSCORE', name.queue, id) then
    local _, stands = proof(name, id, value)
    if not stands then bury(name, id) end
  end
  return value
end

local BRIEF, FULL = { 'mode', 'slot' }, { 'mode', 'slot', 'about', 'since', 'held', 'label' }

-- Returns a claim with so many ahead of it, for `item` in rows.rs.
local function entry(name, at, who, fields)
  local about = redis.call('HMGET', claim(name, who), unpack(fields))
  return { at, who, redis.call('ZSCORE', name.queue, who), left(name, who), about }
end

-- Returns what the own claim needs: the first claim, or as many as there are slots, the nearest one ahead that does not
-- share, the one before the own, and the own.
local function needed(name, value)
  local entries, shown = {}, 0
  local at = redis.call('ZRANK', name.queue, id)
  if not at then return entries end
  local function show(first, last)
    first = math.max(first, shown)
    if first > last then return end
    for n, who in ipairs(redis.call('ZRANGE', name.queue, first, last)) do
      local rank = first + n - 1
      entries[#entries + 1] = entry(name, rank, who, rank == 0 and FULL or BRIEF)
    end
    shown = last + 1
  end
  show(0, (slots or 1) - 1)
  if mode == 'shared' then
    local token = redis.call('ZSCORE', name.queue, id)
    local writer = redis.call('ZREVRANGEBYSCORE', name.writers, token, '-inf', 'LIMIT', 0, 1)[1]
    if writer then
      local rank = redis.call('ZRANK', name.queue, writer)
      show(rank, rank)
    elseif value == MARK .. mode then
      -- Without memory for this, only a deletion of the key by hand would go unnoticed.
      redis.pcall('HSETNX', name.own, 'taken', '1')
    end
  end
  show(math.max(at - 1, 0), at)
  return entries
end

-- Returns one queue as Row in rows.rs takes it. Unset parts are false, because nil would end the row.
local function row(name, value, entries)
  local foreign = value and not is_own(name, value) and foreign_id(name, value)
  return {
    foreign, redis.call('PTTL', name.lock), entries, redis.call('HMGET', name.own, 'gone', 'by', 'asked'),
    redis.call('HGET', name.counters, 'success'), text(now),
  }
end

local function rows()
  local all = {}
  for n, name in ipairs(names) do
    -- A renewal has settled its queues already.
    local value = name.settled
    if value == nil then value = settle(name) end
    all[n] = row(name, value, needed(name, value))
  end
  return all
end

local commands = {}

-- Shows what the own claim needs, after the dead were removed; or all claims, if `is_whole` ('1'), and changes nothing.
function commands.read(is_whole)
  if is_whole ~= '1' then return { 1, rows() } end
  local all = {}
  for n, name in ipairs(names) do
    local value, entries = value_of(name), {}
    for _, who in ipairs(redis.call('ZRANGE', name.queue, 0, -1)) do
      local _, lives = proof(name, who, value)
      if lives and left(name, who) ~= 0 then
        entries[#entries + 1] = entry(name, #entries, who, FULL)
      end
    end
    all[n] = row(name, value, entries)
  end
  return { 1, all }
end

-- Renews the claim by a lease of `ttl`. A claim that is gone from one queue is gone.
function commands.renew(ttl)
  local alive = 1
  ttl = tonumber(ttl)
  for _, name in ipairs(names) do
    name.settled = settle(name)
    if not redis.call('ZSCORE', name.queue, id) then alive = 0 end
  end
  for _, name in ipairs(alive == 1 and names or {}) do
    -- It comes first: a server without memory then lets the script go on.
    redis.call('PEXPIRE', name.leases, text(ttl + DAY))
    redis.call('ZADD', name.leases, text(now_ms + ttl), id)
    for _, key in ipairs({ name.queue, name.writers, name.own }) do keep(key, ttl) end
    if proof(name, id) == name.settled and redis.call('PTTL', name.lock) < ttl then
      redis.call('PEXPIRE', name.lock, text(ttl))
    end
  end
  return { alive, rows() }
end

-- Joins all queues. `about` is the claim's record. If called again after a lost answer, it renews; a claim that was
-- removed stays out.
function commands.append(about, ttl)
  for _, name in ipairs(names) do
    if redis.call('EXISTS', name.own) == 1 then return commands.renew(ttl) end
  end
  for _, name in ipairs(names) do
    local token = text(math.max((redis.call('HGET', name.counters, 'fence') or 0) + 1, now))
    redis.call('HSET', name.counters, 'fence', token)
    redis.call('HSET', name.own, 'mode', mode, 'about', about, 'since', text(now))
    redis.call('ZADD', name.queue, token, id)
    if mode ~= 'shared' then redis.call('ZADD', name.writers, token, id) end
    redis.call('ZADD', name.leases, text(now_ms + ttl), id)
  end
  return commands.renew(ttl)
end

local steps = {}

-- Takes a slot of each name, unless another claim has one, or another program the lock.
function steps.hold(...)
  local wanted = { ... }
  for n, name in ipairs(names) do
    if value_of(name) ~= MARK .. mode then return 0 end
    for _, who in ipairs(redis.call('ZRANGE', name.queue, 0, slots - 1)) do
      if redis.call('HGET', claim(name, who), 'slot') == wanted[n] then return 0 end
    end
  end
  for n, name in ipairs(names) do redis.call('HSETNX', name.own, 'slot', wanted[n]) end
  return 1
end

-- Removes a claim from the first `count` queues. With a reason (`why`, in the name of `by`) it stays out for `late`
-- milliseconds, even if it has not entered yet, because its request may be in flight. If it `held` until it succeeded, the
-- last success is recorded. That is of the run that acquired last, because that run may end before another one with which
-- it shared the lock. A time more than a minute in the future is ignored.
function steps.remove(who, count, held, late, why, by)
  for n = 1, count do
    local name = names[n]
    local key, life = claim(name, who), left(name, who)
    local was_there = remove(name, who)
    if why then
      redis.call('HSET', key, 'gone', why, 'by', by)
      redis.call('PEXPIRE', key, text(math.max(late, life)))
    else
      redis.call('DEL', key)
    end
    local last = tonumber(redis.call('HGET', name.counters, 'success'))
    if held ~= '' and was_there and (not last or last < now - held or last > now + 60000000) then
      redis.call('HSET', name.counters, 'success', text(now - held))
    end
  end
  return 1
end

function steps.remove_foreign()
  redis.call('DEL', names[1].lock)
  return 1
end

-- Sets a field of a claim in the first queue; 'held' is given as the time since then.
function steps.change(who, field, value)
  if field == 'held' then value = text(now - value) end
  redis.call('HSET', claim(names[1], who), field, value)
  return 1
end

-- Makes the step `what` if all of `when` are present, each with its name's number and its token, or 0 for another
-- program's. Removals write first: a server without memory refuses a script at the first command that may need some, but
-- not after the script has written.
function commands.commit(when, what, ...)
  for _, condition in ipairs(cjson.decode(when)) do
    local name, who, token = names[condition[1]], condition[2], condition[3]
    local value = settle(name)
    local is_there = redis.call('ZSCORE', name.queue, who) == token
    if token == '0' then is_there = value and not is_own(name, value) and foreign_id(name, value) == who end
    if not is_there then return { 0, rows() } end
  end
  return { steps[what](...), rows() }
end

return commands[command](unpack(ARGV, 2 * #names + 4))
