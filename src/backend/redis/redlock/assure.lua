-- For a claim to which a majority gave some of its names and that waits for others: the next one gets in there. It may still
-- give back what it has. Further arguments, for each name: the token by which it was given what it has here, or nothing.
for n = 1, names do
  local given, c = ARGV[more + n - 1], redis.call('HMGET', claim_key(n), 'gone', 'token')
  if given ~= '' and not c[1] and c[2] == given then redis.call('HSET', claim_key(n), 'assured', given) end
end
for n = 1, names do settle(n) end
return answer('in')
