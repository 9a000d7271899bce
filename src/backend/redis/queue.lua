-- What queues are, and what keeps them in order.
local function grant(n, who, mode, used)
  local key, lock = claim_of(n, who), lock_key(n)
  local last = tonumber(redis.call('HGET', counters_key(n), 'fence') or 0)
  local token = string.format('%.0f', math.max(last + 1, now))
  redis.call('HSET', counters_key(n), 'fence', token)
  local left = math.max(redis.call('PTTL', key), 1)
  if mode ~= 'exclusive' then left = math.max(left, redis.call('PTTL', lock)) end
  redis.call('SET', lock, proof(mode, who), 'PX', left)
  redis.call('HSET', key, 'token', token, 'held', string.format('%.0f', now))
  if string.sub(mode, 1, 6) == 'slots:' then
    local slot = 1
    while used[tostring(slot)] do slot = slot + 1 end
    used[tostring(slot)] = true
    redis.call('HSET', key, 'slot', slot)
  end
end

local function may_hold(mode, value, kept, kind)
  if mode == 'exclusive' then return kept == 0 and not value end
  if value and value ~= proof(mode) then return false end
  if mode == 'shared' then return kept == 0 or kind == 'shared' end
  return kept < tonumber(string.sub(mode, 7))
end

-- Takes out who is gone at the front of the queue, gives what is free in order of arrival, and tells the first who
-- still waits that it is the first. Looks at nobody behind that one.
local function settle(n)
  local lock, queue, value = lock_key(n), queue_key(n), value_of(n)
  local at, kept, kind, longest, used = 0, 0, false, 0, {}
  while true do
    local who = redis.call('ZRANGE', queue, at, at)[1]
    if not who then break end
    local key, keep = claim_of(n, who), false
    local c = redis.call('HMGET', key, 'mode', 'token', 'slot')
    local mode = c[1] or 'exclusive'
    if c[3] then used[c[3]] = true end
    if not c[1] or c[2] then
      keep = value == proof(mode, who)
      if not keep then
        redis.call('ZREM', queue, who)
        if c[1] then redis.call('HSET', key, 'gone', 'lost') end
      end
    else
      if kept == 0 and is_marker(value) then
        redis.call('DEL', lock)
        value = false
      end
      if not may_hold(mode, value, kept, kind) then
        redis.call('HSETNX', key, 'top', '1')
        break
      end
      grant(n, who, mode, used)
      value, keep = proof(mode, who), true
    end
    if keep then
      at, kept, kind = at + 1, kept + 1, mode
      if mode ~= 'exclusive' then longest = math.max(longest, redis.call('PTTL', key)) end
    end
  end
  if kept == 0 and is_marker(value) then
    redis.call('DEL', lock)
  elseif longest > 0 and redis.call('PTTL', lock) ~= longest then
    redis.call('PEXPIRE', lock, longest)
  end
end

-- Takes a claim out of the queue for good and leaves word of why.
local function remove(n, who, why, by)
  redis.call('ZREM', queue_key(n), who)
  if value_of(n) == who then redis.call('DEL', lock_key(n)) end
  local key = claim_of(n, who)
  if redis.call('EXISTS', key) == 1 then redis.call('HSET', key, 'gone', why, 'by', by) end
end

-- When time alone may change how a waiter stands: the end of whom it waits for, or its own.
local function horizon(n, top, mode, value, ahead)
  local own = redis.call('PTTL', claim_key(n))
  if not top and ahead > 0 then
    local before = redis.call('ZRANGE', queue_key(n), ahead - 1, ahead - 1)[1]
    return least(own, redis.call('PTTL', claim_of(n, before)))
  end
  if string.sub(mode, 1, 6) ~= 'slots:' or not is_marker(value) then
    return least(own, redis.call('PTTL', lock_key(n)))
  end
  for _, who in ipairs(redis.call('ZRANGE', queue_key(n), 0, ahead - 1)) do
    own = least(own, redis.call('PTTL', claim_of(n, who)))
  end
  return own
end

-- How the claim stands in one queue.
local function position(n)
  local c = redis.call('HMGET', claim_key(n), 'mode', 'token', 'slot', 'gone', 'by', 'asked', 'top')
  local mode, token, gone = c[1], c[2], c[4]
  local value = value_of(n)
  -- An exclusive hold outlives its details when only its own key could be renewed.
  if not mode and value == id then
    mode, token = 'exclusive', redis.call('HGET', counters_key(n), 'fence')
  end
  if not gone and (not mode or (token and value ~= proof(mode, id))) then gone = 'lost' end
  local row = { token, c[3], gone, c[5], c[6], c[7], value }
  if gone then return row end
  if token then
    row[8], row[9] = 0, redis.call('PTTL', claim_key(n))
    return row
  end
  row[8] = redis.call('ZRANK', queue_key(n), id)
  if not row[8] then
    row[3] = 'lost'
    return row
  end
  row[9] = horizon(n, c[7], mode, value, row[8])
  local lead = redis.call('ZRANGE', queue_key(n), 0, 0)[1]
  local l = redis.call('HMGET', claim_of(n, lead), 'about', 'label', 'token', 'slot', 'held')
  row[10], row[11], row[12], row[13], row[14] = l[1], l[2], l[3], l[4], l[5]
  return row
end

local function positions()
  local rows = {}
  for n = 1, names do rows[n] = position(n) end
  return rows
end
