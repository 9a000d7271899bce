-- What the queues of one node are, and what keeps them in order.
-- The proposal, unless it would fall back or is far from this node's clock.
local function next_token(n)
  local last = tonumber(redis.call('HGET', counters_key(n), 'fence') or 0)
  local near = now
  if math.abs(hint - now) <= 1000000 then near = hint end
  local token = string.format('%.0f', math.max(last + 1, near))
  redis.call('HSET', counters_key(n), 'fence', token)
  return token
end

-- The slot for a grant: the one that the claim wants, else the lowest that is free. One that holds a majority already
-- has its own or none.
local function slot_for(key, score, used)
  local wish = redis.call('HGET', key, 'wish')
  if wish and not used[wish] then return wish end
  if score == '0' then return nil end
  local slot = 1
  while used[tostring(slot)] do slot = slot + 1 end
  return tostring(slot)
end

local function grant(n, who, score, mode, used)
  local key, lock = claim_of(n, who), lock_key(n)
  local token = next_token(n)
  local left = math.max(redis.call('PTTL', key), 1)
  redis.call('HSET', key, 'token', token, 'held', string.format('%.0f', now))
  redis.call('HDEL', key, 'top', 'behind')
  redis.call('ZREM', queue_key(n), who)
  redis.call('ZADD', holders_key(n), score, who)
  keep(holders_key(n), left)
  if mode ~= 'exclusive' then left = math.max(left, redis.call('PTTL', lock)) end
  redis.call('SET', lock, proof(mode, who), 'PX', left)
  local slot = string.sub(mode, 1, 6) == 'slots:' and slot_for(key, score, used)
  if slot then
    used[slot] = who
    redis.call('HSET', key, 'slot', slot)
  end
end

-- With slots the door: while somebody is here of whom it is not known that a majority gave it the name, nobody else gets
-- in but who holds.
local function may_hold(mode, score, value, here)
  if mode == 'exclusive' then return here.kept == 0 and not value end
  if value and value ~= proof(mode) then return false end
  if mode == 'shared' then return here.kept == 0 or here.kind == 'shared' end
  return here.kept < tonumber(string.sub(mode, 7)) and (not here.open or score == '0')
end

-- Who holds here, after those that are gone have been taken out: how many, their kind, the longest life among them,
-- who has which slot, who has none yet, and whether of one of them it is not known that a majority gave it the name.
local function holders(n, value)
  local here = { kept = 0, kind = false, longest = 0, used = {}, bare = {}, open = false, firm = {} }
  local found = redis.call('ZRANGE', holders_key(n), 0, -1, 'WITHSCORES')
  for i = 1, #found, 2 do
    local who, key = found[i], claim_of(n, found[i])
    local c = redis.call('HMGET', key, 'mode', 'slot', 'gone', 'token', 'assured')
    if not c[3] and value == proof(c[1] or 'exclusive', who) then
      here.kept, here.kind = here.kept + 1, c[1] or 'exclusive'
      if c[2] then here.used[c[2]] = who else here.bare[#here.bare + 1] = who end
      local firm = found[i + 1] == '0' or (c[4] and c[4] == c[5])
      if firm then here.firm[who] = c[2] or '0' else here.open = true end
      if here.kind ~= 'exclusive' then here.longest = math.max(here.longest, redis.call('PTTL', key)) end
    else
      redis.call('ZREM', holders_key(n), who)
      if c[1] and not c[3] then redis.call('HSET', key, 'gone', 'lost') end
    end
  end
  return here
end

-- Those who hold here out of their order hear that somebody before them waits.
local function point_out(n, who, score)
  local rest = redis.call('ZRANGEBYSCORE', holders_key(n), score, '+inf', 'WITHSCORES')
  for i = 1, #rest, 2 do
    local later, key = rest[i + 1] ~= score or rest[i] > who, claim_of(n, rest[i])
    if later and rest[i + 1] ~= '0' and redis.call('EXISTS', key) == 1 then
      redis.call('HSETNX', key, 'behind', '1')
    end
  end
end

-- Takes out who is gone, gives what is free in order, tells the first who still waits that it is the first, and
-- those who hold here out of their order that somebody before them waits.
local function settle(n)
  local lock, queue, value = lock_key(n), queue_key(n), value_of(n)
  local here = holders(n, value)
  if here.kept == 0 and is_marker(value) then
    redis.call('DEL', lock)
    value = false
  end
  for _, who in ipairs(here.bare) do
    local wish = redis.call('HGET', claim_of(n, who), 'wish')
    if wish and here.firm[who] and not here.used[wish] then
      here.used[wish] = who
      redis.call('HSET', claim_of(n, who), 'slot', wish)
    end
  end
  while true do
    local head = redis.call('ZRANGE', queue, 0, 0, 'WITHSCORES')
    local who, score = head[1], head[2]
    if not who then break end
    local key = claim_of(n, who)
    local c = redis.call('HMGET', key, 'mode', 'gone')
    if not c[1] or c[2] then
      redis.call('ZREM', queue, who)
    elseif may_hold(c[1], score, value, here) then
      grant(n, who, score, c[1], here.used)
      value, here.kept, here.kind = proof(c[1], who), here.kept + 1, c[1]
      here.open = here.open or score ~= '0'
      if c[1] ~= 'exclusive' then here.longest = math.max(here.longest, redis.call('PTTL', key)) end
    else
      redis.call('HSETNX', key, 'top', '1')
      point_out(n, who, score)
      break
    end
  end
  if here.longest > 0 and redis.call('PTTL', lock) ~= here.longest then
    redis.call('PEXPIRE', lock, here.longest)
  end
end

-- Takes back what the claim was given here by that token; it waits again where it stood, and wants that slot if one is
-- said. A later grant has another token, so a request that arrives late does nothing.
local function give_back(n, token, wish)
  local key, holds = claim_key(n), holders_key(n)
  local score = redis.call('ZSCORE', holds, id)
  if not score or redis.call('HGET', key, 'token') ~= token then return end
  redis.call('ZREM', holds, id)
  redis.call('ZADD', queue_key(n), score, id)
  redis.call('HDEL', key, 'token', 'slot', 'held', 'behind', 'wish', 'assured')
  if wish ~= '' then redis.call('HSET', key, 'wish', wish) end
  if value_of(n) == id then redis.call('DEL', lock_key(n)) end
end

-- Takes a claim out of the queue for good and leaves word of why.
local function remove(n, who, why, by)
  redis.call('ZREM', queue_key(n), who)
  redis.call('ZREM', holders_key(n), who)
  if value_of(n) == who then redis.call('DEL', lock_key(n)) end
  local key = claim_of(n, who)
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'gone', why, 'by', by) end
end

-- When time alone may change how a waiter stands: the end of whom it waits for, or its own.
local function horizon(n, top, mode, rank)
  local own = redis.call('PTTL', claim_key(n))
  if not top and rank > 0 then
    local before = redis.call('ZRANGE', queue_key(n), rank - 1, rank - 1)[1]
    return least(own, redis.call('PTTL', claim_of(n, before)))
  end
  if string.sub(mode, 1, 6) == 'slots:' then
    for _, who in ipairs(redis.call('ZRANGE', holders_key(n), 0, -1)) do
      own = least(own, redis.call('PTTL', claim_of(n, who)))
    end
  end
  return least(own, redis.call('PTTL', lock_key(n)))
end

-- How the claim stands in one queue of this node.
local function standing(n)
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'slot', 'gone', 'by', 'asked', 'top', 'behind', 'assured',
    'newest')
  local mode, token, gone = c[1], c[2], c[4]
  local value = value_of(n)
  if not gone and not mode then gone = 'missing' end
  if not gone and token and value ~= proof(mode, id) then gone = 'lost' end
  local row = { token, c[3], gone, c[5], c[6], c[7], value }
  for part = 8, 20 do row[part] = false end
  row[18] = redis.call('HGET', counters_key(n), 'fence')
  if gone then return row end
  row[15] = redis.call('ZSCORE', token and holders_key(n) or queue_key(n), id)
  row[16] = c[8]
  if string.sub(mode, 1, 6) == 'slots:' then
    -- Of those whom a majority gave one; 0 is one whose slot another has here.
    local taken = {}
    for who, slot in pairs(holders(n, value).firm) do
      if who ~= id then taken[#taken + 1] = slot end
    end
    row[17] = table.concat(taken, ',')
  end
  row[19] = token and c[9] == token and '1'
  row[20] = c[10]
  if token then
    row[8], row[9] = 0, redis.call('PTTL', claim_key(n))
    return row
  end
  local rank = redis.call('ZRANK', queue_key(n), id)
  if not rank then
    row[3] = 'lost'
    return row
  end
  row[8], row[9] = rank, horizon(n, c[7], mode, rank)
  local lead = redis.call('ZRANGE', holders_key(n), 0, 0)[1] or redis.call('ZRANGE', queue_key(n), 0, 0)[1]
  local l = redis.call('HMGET', claim_of(n, lead), 'about', 'label', 'token', 'slot', 'held')
  row[10], row[11], row[12], row[13], row[14] = l[1], l[2], l[3], l[4], l[5]
  return row
end

-- The answer to a step: a word, how the claim stands, and which server this is and since when it runs.
local function answer(word, rows)
  if not rows then
    rows = {}
    for n = 1, names do rows[n] = standing(n) end
  end
  local info = redis.call('INFO', 'server')
  return { word, rows, string.match(info, 'uptime_in_seconds:(%d+)'), string.match(info, 'run_id:(%w+)') }
end
