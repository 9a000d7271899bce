//! Why dlock is built as it is: decision records, traps, and what changed.

#[doc = include_str!("gotchas.md")]
pub mod gotchas {}

#[doc = include_str!("changelog.md")]
pub mod changelog {}

#[doc = include_str!("adr.md")]
pub mod adr {
    #[doc = include_str!("adr/0001-two-phase-claim.md")]
    pub mod r0001_two_phase_claim {}
    #[doc = include_str!("adr/0002-front-and-keeper.md")]
    pub mod r0002_front_and_keeper {}
    #[doc = include_str!("adr/0003-machine-and-driver.md")]
    pub mod r0003_machine_and_driver {}
    #[doc = include_str!("adr/0004-validity-owned-by-lease.md")]
    pub mod r0004_validity_owned_by_lease {}
    #[doc = include_str!("adr/0005-job-control-is-the-shells.md")]
    pub mod r0005_job_control_is_the_shells {}
    #[doc = include_str!("adr/0006-signals-from-a-descriptor.md")]
    pub mod r0006_signals_from_a_descriptor {}
    #[doc = include_str!("adr/0007-finding-the-tree.md")]
    pub mod r0007_finding_the_tree {}
    #[doc = include_str!("adr/0008-file-queue.md")]
    pub mod r0008_file_queue {}
    #[doc = include_str!("adr/0009-fencing-counter.md")]
    pub mod r0009_fencing_counter {}
    #[doc = include_str!("adr/0010-inherited-descriptor.md")]
    pub mod r0010_inherited_descriptor {}
    #[doc = include_str!("adr/0011-nested-runs-by-mark.md")]
    pub mod r0011_nested_runs_by_mark {}
    #[doc = include_str!("adr/0012-exit-codes.md")]
    pub mod r0012_exit_codes {}
    #[doc = include_str!("adr/0013-panic-abort.md")]
    pub mod r0013_panic_abort {}
    #[doc = include_str!("adr/0014-supervise-uses-the-clock.md")]
    pub mod r0014_supervise_uses_the_clock {}
    #[doc = include_str!("adr/0015-where-unsafe-is.md")]
    pub mod r0015_where_unsafe_is {}
    #[doc = include_str!("adr/0016-dependencies.md")]
    pub mod r0016_dependencies {}
    #[doc = include_str!("adr/0020-gate-before-the-command.md")]
    pub mod r0020_gate_before_the_command {}
    #[doc = include_str!("adr/0021-etcd-layout.md")]
    pub mod r0021_etcd_layout {}
    #[doc = include_str!("adr/0022-etcd-one-server-at-a-time.md")]
    pub mod r0022_etcd_one_server_at_a_time {}
    #[doc = include_str!("adr/0023-etcd-three-requests.md")]
    pub mod r0023_etcd_three_requests {}
    #[doc = include_str!("adr/0024-claims-of-dead-keepers.md")]
    pub mod r0024_claims_of_dead_keepers {}
    #[doc = include_str!("adr/0025-one-suite-for-every-service.md")]
    pub mod r0025_one_suite_for_every_service {}
    #[doc = include_str!("adr/0031-redis-queue.md")]
    pub mod r0031_redis_queue {}
    #[doc = include_str!("adr/0032-redis-tracking.md")]
    pub mod r0032_redis_tracking {}
    #[doc = include_str!("adr/0033-redis-connection.md")]
    pub mod r0033_redis_connection {}
    #[doc = include_str!("adr/0041-zookeeper-session-per-claim.md")]
    pub mod r0041_zookeeper_session_per_claim {}
    #[doc = include_str!("adr/0042-zookeeper-two-nodes-per-claim.md")]
    pub mod r0042_zookeeper_two_nodes_per_claim {}
    #[doc = include_str!("adr/0043-zookeeper-renewal-is-a-write.md")]
    pub mod r0043_zookeeper_renewal_is_a_write {}
    #[doc = include_str!("adr/0044-zookeeper-success-beside-the-queues.md")]
    pub mod r0044_zookeeper_success_beside_the_queues {}
    #[doc = include_str!("adr/0051-redlock.md")]
    pub mod r0051_redlock {}
    #[doc = include_str!("adr/0061-tokio-postgres.md")]
    pub mod r0061_tokio_postgres {}
    #[doc = include_str!("adr/0062-sql-one-batch-per-step.md")]
    pub mod r0062_sql_one_batch_per_step {}
    #[doc = include_str!("adr/0063-postgres-messages.md")]
    pub mod r0063_postgres_messages {}
    #[doc = include_str!("adr/0066-mysql-batches.md")]
    pub mod r0066_mysql_batches {}
    #[doc = include_str!("adr/0067-mysql-waiters-sleep.md")]
    pub mod r0067_mysql_waiters_sleep {}
    #[doc = include_str!("adr/0068-sql-who-leaves-hands-over.md")]
    pub mod r0068_sql_who_leaves_hands_over {}
    #[doc = include_str!("adr/0073-sql-renewals-lock-nothing-shared.md")]
    pub mod r0073_sql_renewals_lock_nothing_shared {}
    #[doc = include_str!("adr/0080-quick-build-and-packaged-program.md")]
    pub mod r0080_quick_build_and_packaged_program {}
    #[doc = include_str!("adr/0082-what-the-kernel-keeps-outlives-a-freeze.md")]
    pub mod r0082_what_the_kernel_keeps_outlives_a_freeze {}
    #[doc = include_str!("adr/0083-when-the-files-of-a-claim-fail.md")]
    pub mod r0083_when_the_files_of_a_claim_fail {}
    #[doc = include_str!("adr/0084-every-single-fault.md")]
    pub mod r0084_every_single_fault {}
    #[doc = include_str!("adr/0085-standard-error-has-a-writer.md")]
    pub mod r0085_standard_error_has_a_writer {}
    #[doc = include_str!("adr/0086-the-ender.md")]
    pub mod r0086_the_ender {}
    #[doc = include_str!("adr/0091-redis-keep-out.md")]
    pub mod r0091_redis_keep_out {}
    #[doc = include_str!("adr/0092-zookeeper-one-node-for-life.md")]
    pub mod r0092_zookeeper_one_node_for_life {}
    #[doc = include_str!("adr/0093-zookeeper-waiters-only-renew.md")]
    pub mod r0093_zookeeper_waiters_only_renew {}
    #[doc = include_str!("adr/0094-sql-messages-prove-nothing.md")]
    pub mod r0094_sql_messages_prove_nothing {}
    #[doc = include_str!("adr/0095-sql-late-requests.md")]
    pub mod r0095_sql_late_requests {}
    #[doc = include_str!("adr/0096-etcd-late-requests.md")]
    pub mod r0096_etcd_late_requests {}
    #[doc = include_str!("adr/0097-renewed-before-held.md")]
    pub mod r0097_renewed_before_held {}
    #[doc = include_str!("adr/0098-foreign-entries-have-claims.md")]
    pub mod r0098_foreign_entries_have_claims {}
    #[doc = include_str!("adr/0099-zookeeper-shortest-grant.md")]
    pub mod r0099_zookeeper_shortest_grant {}
    #[doc = include_str!("adr/0100-every-single-message.md")]
    pub mod r0100_every_single_message {}
    #[doc = include_str!("adr/0101-a-service-is-one-folder.md")]
    pub mod r0101_a_service_is_one_folder {}
    #[doc = include_str!("adr/0105-elections-are-runs.md")]
    pub mod r0105_elections_are_runs {}
    #[doc = include_str!("adr/0106-values-are-written-by-who-has-the-claim.md")]
    pub mod r0106_values_are_written_by_who_has_the_claim {}
    #[doc = include_str!("adr/0107-the-newcomer-asks.md")]
    pub mod r0107_the_newcomer_asks {}
    #[doc = include_str!("adr/0108-the-front-tells-the-service-manager.md")]
    pub mod r0108_the_front_tells_the_service_manager {}
    #[doc = include_str!("adr/0102-a-process-that-was-there-before.md")]
    pub mod r0102_a_process_that_was_there_before {}
    #[doc = include_str!("adr/0103-a-release-is-asked-through-the-service.md")]
    pub mod r0103_a_release_is_asked_through_the_service {}
    #[doc = include_str!("adr/0104-a-lease-without-a-process.md")]
    pub mod r0104_a_lease_without_a_process {}
    #[doc = include_str!("adr/0113-pages-are-markdown-and-shells-ask-the-program.md")]
    pub mod r0113_pages_are_markdown_and_shells_ask_the_program {}
    #[doc = include_str!("adr/0110-a-queue-is-one-document.md")]
    pub mod r0110_a_queue_is_one_document {}
    #[doc = include_str!("adr/0111-memcached-by-hand.md")]
    pub mod r0111_memcached_by_hand {}
    #[doc = include_str!("adr/0112-memcached-keys-and-foreign-clients.md")]
    pub mod r0112_memcached_keys_and_foreign_clients {}
    #[doc = include_str!("adr/0114-one-list-of-causes.md")]
    pub mod r0114_one_list_of_causes {}
    #[doc = include_str!("adr/0115-what-others-made-is-called-as-its-service-calls-it.md")]
    pub mod r0115_what_others_made_is_called_as_its_service_calls_it {}
    #[doc = include_str!("adr/0118-one-set-of-trials-for-every-way-to-hold.md")]
    pub mod r0118_one_set_of_trials_for_every_way_to_hold {}
    #[doc = include_str!("adr/0119-postgres-waiters-do-not-sleep-in-a-lock.md")]
    pub mod r0119_postgres_waiters_do_not_sleep_in_a_lock {}
    #[doc = include_str!("adr/0121-how-a-claim-stands-is-told-once.md")]
    pub mod r0121_how_a_claim_stands_is_told_once {}
    #[doc = include_str!("adr/0122-files-of-a-folder-form-no-circle.md")]
    pub mod r0122_files_of_a_folder_form_no_circle {}
    #[doc = include_str!("adr/0124-every-message-of-every-way-to-hold.md")]
    pub mod r0124_every_message_of_every_way_to_hold {}
    #[doc = include_str!("adr/0125-an-attempt-to-enter-is-undone-whatever-came-of-it.md")]
    pub mod r0125_an_attempt_to_enter_is_undone_whatever_came_of_it {}
    #[doc = include_str!("adr/0126-a-reason-has-parts.md")]
    pub mod r0126_a_reason_has_parts {}
    #[doc = include_str!("adr/0127-what-ends-a-claim-waits-for-no-answer.md")]
    pub mod r0127_what_ends_a_claim_waits_for_no_answer {}
    #[doc = include_str!("adr/0128-a-tree-is-stopped-before-it-is-told-to-end.md")]
    pub mod r0128_a_tree_is_stopped_before_it_is_told_to_end {}
    #[doc = include_str!("adr/0129-the-next-address-of-a-host-is-tried-beside-a-silent-one.md")]
    pub mod r0129_the_next_address_of_a_host_is_tried_beside_a_silent_one {}
    #[doc = include_str!("adr/0130-one-observer-for-queues-that-are-read.md")]
    pub mod r0130_one_observer_for_queues_that_are_read {}
    #[doc = include_str!("adr/0131-a-cycle-of-waits-is-found-from-name-to-name.md")]
    pub mod r0131_a_cycle_of_waits_is_found_from_name_to_name {}
    #[doc = include_str!("adr/0132-one-loop-for-requests.md")]
    pub mod r0132_one_loop_for_requests {}
    #[doc = include_str!("adr/0140-lock-files-among-sweepers.md")]
    pub mod r0140_lock_files_among_sweepers {}
}
