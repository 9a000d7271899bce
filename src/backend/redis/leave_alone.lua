-- Further arguments: whether the run was a success, and for how long to keep the id out. What frees comes first: once a script has written, a server without memory lets it write the rest.
-- The usual case, ahead of all that it does not need: an exclusive hold with nobody else there.
local alone = ARGV[more + 1] == '0'
for n = 1, names do
  if alone then
    local value = redis.pcall('GET', lock_key(n))
    local queue = redis.call('ZRANGE', queue_key(n), 0, 1)
    alone = value == id and #queue == 1 and queue[1] == id
  end
end
if alone then
  for n = 1, names do
    local held = ARGV[more] == '1' and redis.call('HGET', claim_key(n), 'held')
    redis.call('DEL', lock_key(n), queue_key(n), claim_key(n))
    if held then record_success(n, held) end
  end
  return 1
end
