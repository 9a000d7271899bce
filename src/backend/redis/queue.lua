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
--                 when the last successful run acquired; 'changes', how often a claim was changed.
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
    counts = redis.call('HMGET', KEYS[k + 4], 'fence', 'named', 'success'),
    -- `look` adds the lock's value, whether another program set it ('foreign'), and what is read of claims ('fields').
  }
end

local DAY, HOUR = 86400000, 3600000

local function claim(name, who) return name.before .. who .. name.after end

local function text(number) return string.format('%.0f', number) end

-- Returns the lock's value. A key that is not a string belongs to another program's client, and is taken.
local function value_of(name)
  local value = redis.pcall('GET', name.lock)
  if type(value) == 'table' then return '?' end
  return value
end

-- Returns the id of another program's client's hold, which is stable while the lock's key is unchanged. For a key that
-- is not a string, its serialised value counts, if the user may see that.
local function foreign_id(name, value)
  local dump = value == '?' and redis.pcall('DUMP', name.lock)
  if type(dump) == 'string' then value = dump end
  return string.sub(redis.sha1hex(name.lock .. '\0' .. value), 1, 32)
end

-- Returns whether dlock set the lock's key. Tokens of redis-py look like claim ids, but are not in the queue.
local function is_own(name, value)
  return string.sub(value, 1, #MARK) == MARK or redis.call('ZSCORE', name.queue, value)
end

-- Returns the value of the lock's key that stands for a claim of mode `its_mode`.
local function value_for(who, its_mode) return its_mode == 'exclusive' and who or MARK .. its_mode end

-- Returns fields of a claim: those that its entry shows, and 'taken'.
local function fields_of(name, who)
  local read = name.fields[who]
  if not read then
    read = redis.call('HMGET', claim(name, who), 'mode', 'slot', 'about', 'since', 'held', 'label', 'taken')
    name.fields[who] = read
  end
  return read
end

-- Returns the value of the lock's key that stands for a claim, and whether the claim lives as far as its keys tell: its
-- hash is there, and if the lock's key stood for it once, it still does.
local function proof(name, who)
  local fields = fields_of(name, who)
  local its_value = value_for(who, fields[1] or 'exclusive')
  local stood = fields[2] or fields[7] or name.counts[2] == who
  return its_value, fields[1] and (name.value == its_value or not stood)
end

-- Returns the rest of a claim's lease.
local function left(name, who)
  return math.max((redis.call('ZSCORE', name.leases, who) or now_ms) - now_ms, 0)
end

-- Returns the rest of the longest lease.
local function longest(name)
  return (redis.call('ZRANGE', name.leases, -1, -1, 'WITHSCORES')[2] or now_ms) - now_ms
end

-- Removes a claim from the queue and the lock. Returns whether it was there.
local function remove(name, who)
  local was_there = redis.call('ZREM', name.queue, who)
  redis.call('ZREM', name.writers, who)
  redis.call('ZREM', name.leases, who)
  local value = value_of(name)
  if value == who then
    was_there = redis.call('DEL', name.lock)
  elseif was_there == 1 and value and string.sub(value, 1, #MARK) == MARK then
    redis.call('PEXPIRE', name.lock, text(math.max(longest(name), 1)))
  end
  return was_there == 1
end

local function bury(name, who)
  remove(name, who)
  redis.call('DEL', claim(name, who))
end

-- Reads the lock's key, and forgets what was read of claims before.
local function look(name)
  name.fields, name.value = {}, value_of(name)
  name.foreign = name.value and not is_own(name, name.value)
end

-- Executes a command that may need memory. A server without any refuses that, but not after a removal, even of nothing.
local function write(...)
  local said = redis.pcall(...)
  if type(said) ~= 'table' or not said.err then return end
  redis.call('ZREM', names[1].leases, '')
  redis.call(...)
end

-- Returns a claim whose lease has ended, if there is one.
local function expired(name)
  local first = redis.call('ZRANGE', name.leases, 0, 0, 'WITHSCORES')
  if first[1] and tonumber(first[2]) <= now_ms then return first[1] end
end

-- Removes dead claims, and makes the lock's key name the first one unless another program has it.
local function settle(name)
  for who in expired, name do bury(name, who) end
  local first, its_value, lives
  repeat
    look(name)
    first, lives = redis.call('ZRANGE', name.queue, 0, 0)[1], true
    if first then its_value, lives = proof(name, first) end
    if not lives then bury(name, first) end
  until lives
  if first and name.value ~= its_value and not name.foreign then
    -- Others that share the lock may have longer leases.
    local life = its_value == first and left(name, first) or longest(name)
    write('SET', name.lock, its_value, 'PX', text(math.max(life, 1)))
    redis.call('HSET', name.counters, 'named', first)
    name.value, name.counts[2] = its_value, first
  elseif not first and name.value and not name.foreign then
    redis.call('DEL', name.lock)
    name.value = false
  end
  if first and first ~= id and redis.call('ZSCORE', name.queue, id) then
    local _, lives = proof(name, id)
    if not lives then bury(name, id) end
  end
end

-- Returns what the own claim needs: the first claim, or as many as there are slots, the nearest one ahead that does not
-- share, the one before the own, and the own. `item` in rows.rs takes them.
local function needed(name)
  local entries, shown = {}, 0
  local at = redis.call('ZRANK', name.queue, id)
  if not at then return entries end
  local function show(first, last)
    first = math.max(first, shown)
    if first > last then return end
    local found = redis.call('ZRANGE', name.queue, first, last, 'WITHSCORES')
    for n = 1, #found, 2 do
      local rank, who = first + (n - 1) / 2, found[n]
      local fields = fields_of(name, who)
      if rank ~= 0 then fields = { fields[1], fields[2] } end
      entries[#entries + 1] = { rank, who, found[n + 1], left(name, who), fields }
    end
    shown = last + 1
  end
  show(0, (slots or 1) - 1)
  if mode == 'shared' then
    local token = redis.call('ZSCORE', name.queue, id)
    local writer, rank
    repeat
      writer = redis.call('ZREVRANGEBYSCORE', name.writers, token, '-inf', 'LIMIT', 0, 1)[1]
      rank = writer and redis.call('ZRANK', name.queue, writer)
      -- The queue was deleted by hand while that claim waited.
      if writer and not rank then redis.call('ZREM', name.writers, writer) end
    until rank or not writer
    if rank then
      show(rank, rank)
    elseif name.value == MARK .. mode then
      -- Without memory for this, only a deletion of the key by hand would go unnoticed.
      redis.pcall('HSETNX', name.own, 'taken', '1')
    end
  end
  show(math.max(at - 1, 0), at)
  return entries
end

-- Returns one queue as Row in rows.rs takes it. Unset parts are false, because nil would end the row.
local function row(name, entries)
  local foreign = name.foreign and foreign_id(name, name.value)
  return {
    foreign, foreign and redis.call('PTTL', name.lock) or -1, entries,
    redis.call('HMGET', name.own, 'gone', 'by', 'asked'), name.counts[3], text(now),
  }
end

-- Returns the queues, which were settled, as the own claim needs them.
local function rows()
  local all = {}
  for n, name in ipairs(names) do all[n] = row(name, needed(name)) end
  return all
end

local function settled_rows()
  for _, name in ipairs(names) do settle(name) end
  return rows()
end

local commands = {}

-- Shows what the own claim needs, after the dead were removed; or all claims, if `is_whole` ('1'), and changes nothing.
function commands.read(is_whole)
  if is_whole ~= '1' then return { 1, settled_rows() } end
  local all = {}
  for n, name in ipairs(names) do
    look(name)
    local entries, found = {}, redis.call('ZRANGE', name.queue, 0, -1, 'WITHSCORES')
    for m = 1, #found, 2 do
      local who = found[m]
      local _, lives = proof(name, who)
      local rest = left(name, who)
      if lives and rest ~= 0 then
        entries[#entries + 1] = { #entries, who, found[m + 1], rest, fields_of(name, who) }
      end
    end
    all[n] = row(name, entries)
  end
  return { 1, all }
end

-- Renews the claim by a lease of `ttl`. A claim that is gone from one queue is gone.
function commands.renew(ttl)
  local alive = 1
  ttl = tonumber(ttl)
  for _, name in ipairs(names) do
    settle(name)
    if not redis.call('ZSCORE', name.queue, id) then alive = 0 end
  end
  for _, name in ipairs(alive == 1 and names or {}) do
    local life = math.max(longest(name), ttl)
    -- The keys live a day longer than the claims, and are removed at last. This comes first: a server without memory
    -- then lets the script go on.
    for _, key in ipairs({ name.leases, name.queue, name.writers }) do
      redis.call('PEXPIRE', key, text(life + DAY))
    end
    -- Each change of the claim's hash wakes the claims that watch it.
    if redis.call('PTTL', name.own) < life + DAY - HOUR then redis.call('PEXPIRE', name.own, text(life + DAY)) end
    redis.call('ZADD', name.leases, text(now_ms + ttl), id)
    if name.value == value_for(id, mode) then
      redis.call('PEXPIRE', name.lock, text(mode == 'exclusive' and ttl or life))
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
    local token = text(math.max((name.counts[1] or 0) + 1, now))
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
  for n, name in ipairs(names) do write('HSETNX', name.own, 'slot', wanted[n]) end
  return 1
end

-- Removes a claim from the first `count` queues. With a reason (`why`, in the name of `by`) it stays out for `late`
-- milliseconds, even if it has not entered yet, because its request may be in flight. If it `held` until it succeeded, the
-- last success is recorded. That is of the run that acquired last, because that run may end before another one with which
-- it shared the lock. A time more than a minute in the future is ignored.
function steps.remove(who, count, held, late, why, by)
  for n = 1, count do
    local name = names[n]
    local key, life = claim(name, who), why and left(name, who)
    local was_there = remove(name, who)
    if why then
      redis.call('HSET', key, 'gone', why, 'by', by)
      redis.call('PEXPIRE', key, text(math.max(late, life)))
    else
      redis.call('DEL', key)
    end
    local last = tonumber(name.counts[3])
    if held ~= '' and was_there and (not last or last < now - held or last > now + 60000000) then
      name.counts[3] = text(now - held)
      redis.call('HSET', name.counters, 'success', name.counts[3])
    end
  end
  return 1
end

function steps.remove_foreign()
  redis.call('DEL', names[1].lock)
  return 1
end

-- Sets a field of a claim in the first queue; 'held' is given as the time since then. A client that follows the
-- queue tracks the keys that it gives to the script, and this claim's is not one of them.
function steps.change(who, field, value)
  if field == 'held' then value = text(now - value) end
  redis.call('HSET', claim(names[1], who), field, value)
  redis.call('HINCRBY', names[1].counters, 'changes', 1)
  return 1
end

-- Makes the step `what` if all of `when` are present, each with its name's number and its token, or 0 for another
-- program's. Removals write first: a server without memory refuses a script at the first command that may need some, but
-- not after the script has written.
function commands.commit(when, what, ...)
  for _, condition in ipairs(cjson.decode(when)) do
    local name, who, token = names[condition[1]], condition[2], condition[3]
    settle(name)
    local is_there = redis.call('ZSCORE', name.queue, who) == token
    if token == '0' then is_there = name.foreign and foreign_id(name, name.value) == who end
    if not is_there then return { 0, settled_rows() } end
  end
  return { steps[what](...), settled_rows() }
end

return commands[command](unpack(ARGV, 2 * #names + 4))
